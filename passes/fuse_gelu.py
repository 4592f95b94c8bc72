"""Recognise the erf form of Gelu."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import is_op, nodes, only_consumer, opset, scalar
from lucid_fx.ops.emit import CONTRIB, Emit
from lucid_fx.passes.pipeline import GraphPass

GELU_OPSET = 20
"""First ONNX operator set with Gelu; older models get onnxruntime's own op."""


@dataclass(frozen=True)
class FuseGelu(GraphPass):
    """Write ``x · 0.5 · (1 + erf(x / √2))`` as one op, in whatever order it is multiplied.

    ``g = Mul (x, 0.7071); e = Erf (g); a = Add (e, 1); m = Mul (x, a); y = Mul (m, 0.5)`` →
    ``y = com.microsoft.Gelu (x)``; a chain with another factor, or whose Erf has a second reader,
    stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        domain = "" if opset(model) >= GELU_OPSET else CONTRIB
        for node in list(nodes(model)):
            found = _find(node) if is_op(node, "Erf") else None
            if found is None:
                continue
            source, members = found
            last = members[-1]
            output = last.outputs[0]
            emit = Emit(model, names, last, self.name, members)
            new = emit.op("Gelu", [source], domain=domain, like=output, dtype=output.dtype)
            graph = last.graph
            take_place(last, [new])
            assert isinstance(graph, ir.Graph)
            graph.remove(members[:-1], safe=True)
            changed = True
        return changed


def _find(erf: ir.Node) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
    """The input of the Gelu around an Erf, and its nodes in graph order."""
    inner = erf.inputs[0].producer() if erf.inputs[0] is not None else None
    shifted = only_consumer(erf.outputs[0])
    if inner is None or shifted is None or not is_op(shifted, "Add"):
        return None
    source = _scaled(inner, 1 / sqrt(2))
    if source is None or only_consumer(inner.outputs[0]) is not erf or not _plus_one(shifted):
        return None
    for product in _products(source, shifted):
        if product is not None and all(node.graph is erf.graph for node in product):
            members = (inner, erf, shifted, *product)
            return (source, members) if _closed(members) else None
    return None


def _products(source: ir.Value, shifted: ir.Node) -> Iterator[tuple[ir.Node, ...] | None]:
    """The ways to multiply x, 0.5 and (1 + erf)."""
    last = only_consumer(shifted.outputs[0])
    if last is None or not is_op(last, "Mul"):
        return
    other = last.inputs[1] if last.inputs[0] is shifted.outputs[0] else last.inputs[0]
    if other is source:  # (x · a) · 0.5
        halved = only_consumer(last.outputs[0])
        yield (last, halved) if halved is not None and _scaled(halved, 0.5) else None
    elif scalar(other) is not None:  # x · (a · 0.5)
        outer = only_consumer(last.outputs[0])
        if _scaled(last, 0.5) and outer is not None and is_op(outer, "Mul"):
            yield (last, outer) if source in outer.inputs else None
    elif other is not None:  # (x · 0.5) · a
        half = other.producer()
        yield (half, last) if half is not None and _scaled(half, 0.5) is source else None


def _scaled(node: ir.Node, factor: float) -> ir.Value | None:
    """x, where the node multiplies x by the factor or divides it by its inverse."""
    if is_op(node, "Div"):
        number = scalar(node.inputs[1])
        near = number is not None and abs(number * factor - 1) < 1e-4
        return node.inputs[0] if near else None
    if is_op(node, "Mul"):
        for data, other in (node.inputs, reversed(node.inputs)):
            number = scalar(other)
            if number is not None and abs(number / factor - 1) < 1e-4:
                return data
    return None


def _plus_one(node: ir.Node) -> bool:
    return any(scalar(value) == 1.0 for value in node.inputs)


def _closed(members: tuple[ir.Node, ...]) -> bool:
    inside = {id(node) for node in members}
    return not any(
        value.is_graph_output() or any(id(use.node) not in inside for use in value.uses())
        for node in members[:-1]
        for value in node.outputs
    )
