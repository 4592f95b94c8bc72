"""Run images channels-last where integer kernels want them so, with the fewest Transposes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.partition import FORBIDDEN, Tie, cheapest_choice
from lucid_fx.ir.provenance import mark
from lucid_fx.ir.rewrite import bypass, remove
from lucid_fx.ir.walk import constant, is_constant, is_op, nodes, rank
from lucid_fx.ops.emit import Emit
from lucid_fx.ops.layout import LayoutRule, find_rule, to_first, to_last, turned_constant
from lucid_fx.passes.pipeline import GraphPass

CODE_PRICE, REAL_PRICE = 0.09, 0.21
"""Nanoseconds an element of transposing 8-bit codes and float32."""
NOMINAL = 10_000


@dataclass(frozen=True)
class AssignChannelsLast(GraphPass):
    """Turn whole regions, so that Transposes stand at their rims only.

    ``c = QLinearConv (x, …); y = QLinearAdd (c, x)`` → ``t = Transpose (x); c = QLinearConv
    <channels_last = 1> (t, …); a = QLinearAdd (c, t); y = Transpose (a)``; a region in which no op
    gains from channels-last stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        rules = {n.name: r for n in nodes(model) if (r := find_rule(n)) is not None}
        prices: dict[Hashable, tuple[float, float]] = {
            name: rule.prices(node, _size)
            for node in nodes(model)
            if (rule := rules.get(name := node.name)) is not None
        }
        outside = ("outside",)
        prices[outside] = (FORBIDDEN, 0.0)
        chosen = cheapest_choice(prices, list(_ties(model, rules, outside)))
        turn = _Turn(model, self.name)
        for node in list(nodes(model)):
            if node.name in chosen:
                turn.node(node, rules[node.name])
        turn.finish()
        return bool(chosen)


def _ties(model: ir.Model, rules: dict[str | None, LayoutRule], outside: Hashable) -> Iterator[Tie]:
    """One tie for each image between nodes, where Transposes give and take either layout."""
    values: dict[int, ir.Value] = {}
    for node in nodes(model):
        rule = rules.get(node.name)
        if rule is not None:
            images = [node.inputs[index] for index in rule.images(node)]
            for value in (*images, *node.outputs):
                if value is not None and not is_constant(value):
                    values[id(value)] = value
    for value in values.values():
        producer = value.producer()
        source = producer.name if producer is not None and producer.name in rules else outside
        readers: list[Hashable] = [outside] if value.is_graph_output() else []
        for use in value.uses():
            rule = rules.get(use.node.name)
            if rule is not None and use.idx in rule.images(use.node):
                readers.append(use.node.name)
            elif not is_op(use.node, "Transpose"):
                readers.append(outside)
        code = value.dtype in (ir.DataType.UINT8, ir.DataType.INT8)
        price = (CODE_PRICE if code else REAL_PRICE) * _size(value)
        free = producer is not None and is_op(producer, "Transpose")
        yield Tie(source, tuple(readers), price, 0.0 if free else price)


def _size(value: ir.Value) -> int:
    if value.shape is None:
        return NOMINAL
    return int(np.prod([dim if isinstance(dim, int) else 32 for dim in value.shape]))


class _Turn:
    """Rewrites chosen nodes one by one in graph order."""

    def __init__(self, model: ir.Model, pass_name: str) -> None:
        self.model, self.pass_name, self.names = model, pass_name, Names(model)
        self.last: dict[int, ir.Value] = {}
        self.first: list[tuple[ir.Value, ir.Value, ir.Node]] = []

    def node(self, node: ir.Node, rule: LayoutRule) -> None:
        """Write the channels-last form of a node; its old outputs wait for `finish`."""
        emit = Emit(self.model, self.names, node, self.pass_name)
        dims = rank(node.outputs[0])
        assert dims is not None
        inputs: list[ir.Value | None] = list(node.inputs)
        for index in rule.images(node):
            value = node.inputs[index]
            assert value is not None
            inputs[index] = self._turned(value, dims, emit)
        outputs = rule.write(emit, node, inputs)
        for old, new in zip(node.outputs, outputs, strict=False):
            new.type, new.shape = old.type, _permuted(old.shape, to_last(dims))
            self.last[id(old)] = new
            self.first.append((old, new, node))

    def _turned(self, value: ir.Value, dims: int, emit: Emit) -> ir.Value:
        if id(value) not in self.last:
            array = constant(value)
            if array is not None:
                turned = turned_constant(array, dims)
                self.last[id(value)] = emit.constant(turned, f"{value.name}_turned")
            else:
                self.last[id(value)] = self._transpose_behind(value, to_last(dims), emit)
        return self.last[id(value)]

    def _transpose_behind(self, value: ir.Value, perm: list[int], emit: Emit) -> ir.Value:
        """A Transpose right behind the producer, so that every reader can share it."""
        producer, graph, source = value.producer(), value.graph, value
        if producer is not None and is_op(producer, "Transpose") and "perm" in producer.attributes:
            inner, given = list(producer.attributes["perm"].as_ints()), producer.inputs[0]
            assert given is not None
            perm, source = [inner[axis] for axis in perm], given
            if perm == sorted(perm):
                return source
        node = ir.node("Transpose", [source], {"perm": perm})
        node.name = self.names.fresh(f"{value.name}_Transpose")
        node.outputs[0].name = self.names.fresh(f"{value.name}_turned")
        node.outputs[0].type, node.outputs[0].shape = value.type, _permuted(source.shape, perm)
        mark(node, self.pass_name, [] if producer is None else [producer])
        if producer is not None:
            producer.append(node)
        else:
            assert isinstance(graph, ir.Graph)
            graph.insert_before(next(iter(graph)), node)
        return node.outputs[0]

    def finish(self) -> None:
        """Give channels-first readers a Transpose, and drop the old nodes."""
        for old, new, node in reversed(self.first):
            producer = new.producer()
            assert producer is not None
            readers = [use for use in old.uses() if use.node.graph is not None]
            for use in readers:
                if is_op(use.node, "Transpose") and use.node is not producer:
                    _compose(use.node, new, to_first(len(use.node.attributes["perm"].as_ints())))
            if old.uses() or old.is_graph_output():
                perm = to_first(rank(new) or len(new.shape or ()))
                back = ir.node("Transpose", [new], {"perm": perm})
                back.name = self.names.fresh(f"{old.name}_Transpose")
                mark(back, self.pass_name, [node])
                producer.append(back)
                value, name = back.outputs[0], old.name
                value.type, value.shape = old.type, old.shape
                old.replace_all_uses_with(value, replace_graph_outputs=True)
                old.name = f"{name}~replaced"
                value.name = name
            if not any(v.uses() or v.is_graph_output() for v in node.outputs) and node.graph:
                remove(node)
        self._drop_identities()

    def _drop_identities(self) -> None:
        """Remove Transposes that do nothing, or that nobody reads any more."""
        for node in reversed(list(nodes(self.model))):
            if not is_op(node, "Transpose") or "perm" not in node.attributes:
                continue
            perm, output = list(node.attributes["perm"].as_ints()), node.outputs[0]
            if not output.uses() and not output.is_graph_output():
                remove(node)
            elif node.inputs[0] is not None and perm == sorted(perm):
                bypass(node, node.inputs[0])


def _compose(node: ir.Node, source: ir.Value, before: list[int]) -> None:
    """Let a Transpose read ``source``, whose Transpose by ``before`` it used to read."""
    perm = list(node.attributes["perm"].as_ints())
    node.attributes["perm"] = ir.AttrInt64s("perm", [before[axis] for axis in perm])
    node.replace_input_with(0, source)


def _permuted(shape: ir.Shape | None, perm: list[int]) -> ir.Shape | None:
    return None if shape is None else ir.Shape([shape[axis] for axis in perm])
