"""Which nodes compute on codes: the cheapest split of the graph into integer and float regions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.partition import FORBIDDEN, Tie, cheapest_choice
from lucid_fx.ir.walk import attribute, graphs, is_constant, is_float, is_op, nodes, only_consumer
from lucid_fx.ops.elementwise import clip_bounds
from lucid_fx.ops.row import OutputGrid
from lucid_fx.ops.table import find_row, refusal
from lucid_fx.target import Target

QUANTIZE_PRICE, DEQUANTIZE_PRICE, RELAYOUT_PRICE = 0.133, 0.121, 0.03
"""Nanoseconds an element for Q, for DQ, and for the Transpose that some images need at either."""
ROUNDING_PRICE = 0.12
"""What rounding a result to 8 bits once more is worth avoiding, in nanoseconds an element.

From docs/decisions/0003: at this price chains of four roundings give way to a float island of
the same speed, and single activations between convolutions stay on codes.
"""
NOMINAL_DIM, NOMINAL_SIZE = 32, 10_000
"""Assumed for a dimension, or a whole shape, that nobody told."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of values, from one sample's shapes, the model's own, or nominal dimensions."""

    shapes: Mapping[str, tuple[int, ...]]

    def shape(self, value: ir.Value) -> tuple[int | None, ...] | None:
        """The shape with None for what is not known."""
        if value.name is not None and value.name in self.shapes:
            return self.shapes[value.name]
        if value.shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else None for dim in value.shape)

    def rank(self, value: ir.Value) -> int | None:
        """Number of dimensions."""
        shape = self.shape(value)
        return None if shape is None else len(shape)

    def elements(self, value: ir.Value | None) -> int:
        """Number of elements."""
        shape = None if value is None else self.shape(value)
        if shape is None:
            return NOMINAL_SIZE
        dims = [NOMINAL_DIM if dim is None else dim for dim in shape]
        if shape and shape[0] is None:
            dims[0] = 1
        return int(np.prod(dims, dtype=np.int64))

    def multiply_adds(self, node: ir.Node) -> int:
        """Multiply-adds of a Conv, Gemm or MatMul with a constant weight."""
        weight = node.inputs[1]
        assert weight is not None and weight.const_value is not None
        shape = [int(dim) for dim in weight.const_value.shape.numpy()]
        outputs = self.elements(node.outputs[0])
        if is_op(node, "Conv"):
            return outputs * int(np.prod(shape[1:]))
        return outputs * shape[1 if is_op(node, "Gemm") and attribute(node, "transB", 0) else 0]


@dataclass(frozen=True)
class Plan:
    """What prepare decided.

    Attributes:
        integer: nodes that compute on codes.
        dynamic: nodes with integer weights whose activations are quantized at run time.
        absorbed: Relu and Clip nodes that become the range of their producer's grid.
        observed: values whose range must be known → the node whose recipe governs them.
        reasons: why any other node stays in float.
    """

    integer: frozenset[str] = frozenset()
    dynamic: frozenset[str] = frozenset()
    absorbed: frozenset[str] = frozenset()
    observed: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def choose_integer_regions(
    model: ir.Model,
    target: Target,
    excluded: dict[str, str] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    unclipped: frozenset[str] = frozenset(),
) -> Plan:
    """Decide for each node whether it computes on codes.

    Conv is always quantized. MatMul and Gemm always get integer weights: on codes where their
    input arrives in codes, otherwise with activations quantized at run time. Any other op is
    quantized only where that makes the whole cheaper, by joining integer regions.

    Args:
        model: the fused float model.
        target: prices and kernels.
        excluded: nodes to leave in float → why.
        shapes: concrete shapes of one sample, by value; they sharpen the choice.
        unclipped: nodes whose output grid does not end where an activation clips (symmetric ones).
    """
    excluded = excluded or {}
    every = list(nodes(model))
    refused = {n.name: excluded.get(n.name or "") or refusal(n) for n in every}
    sizes = Sizes(shapes or {})
    prices: dict[Hashable, tuple[float, float]] = {
        n.name: _price(n, refused[n.name], target, sizes) for n in every
    }
    ties = list(_ties(model, prices, refused, sizes))
    chosen = cheapest_choice(prices, ties)
    integer = frozenset(str(n.name) for n in every if n.name in chosen)
    dynamic = frozenset(
        str(n.name)
        for n in every
        if (n.name not in chosen and refused[n.name] is None and _weighted(n))
        or (is_op(n, "LSTM") and n.name not in excluded and _is_single(n.inputs[0]))
    )
    reasons = {
        str(n.name): refused[n.name] or "between float neighbours it gains nothing from codes"
        for n in every
        if n.name not in integer | dynamic
    }
    absorbed = frozenset(
        str(n.name) for n in every if n.name not in unclipped and _is_absorbed(n, integer)
    )
    return Plan(integer, dynamic, absorbed, _observed(every, integer, absorbed), reasons)


def _is_single(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == ir.DataType.FLOAT


def _weighted(node: ir.Node) -> bool:
    return is_op(node, "MatMul", "Gemm")


def _price(node: ir.Node, refused: str | None, target: Target, sizes: Sizes) -> tuple[float, float]:
    """Prices of a node on codes and in float."""
    row, elements = find_row(node), sizes.elements(node.outputs[0])
    if row is None or refused is not None:
        return FORBIDDEN, 0.0
    if row.weight is None:
        rounds = ROUNDING_PRICE if row.output is not OutputGrid.SHARED else 0.0
        read = max(sizes.elements(node.inputs[index]) for index in row.data(node))
        work = max(elements, read)
        return row.integer_price * work + rounds * elements, row.float_price * work
    work = sizes.multiply_adds(node)
    depthwise = is_op(node, "Conv") and attribute(node, "group", 1) > 1
    on_codes = work * (target.integer_depthwise_mac if depthwise else target.integer_mac)
    if is_op(node, "Conv"):
        return on_codes, FORBIDDEN
    source = node.inputs[0]
    at_run_time = 0.3 * sizes.elements(source) + 0.12 * elements if source is not None else 0.0
    return on_codes, on_codes + at_run_time


def _ties(
    model: ir.Model,
    prices: dict[Hashable, tuple[float, float]],
    refused: dict[str | None, str | None],
    sizes: Sizes,
) -> Iterator[Tie]:
    """One tie for each real value between nodes; graph inputs and outputs stay real."""
    outside = ("outside",)
    prices[outside] = (FORBIDDEN, 0.0)
    for value in real_values(model):
        producer = value.producer()
        elements = sizes.elements(value)
        layout = RELAYOUT_PRICE if sizes.rank(value) == 4 else 0.0
        readers: list[Hashable] = [outside] if value.is_graph_output() else []
        weighted: list[Hashable] = []
        for use in value.uses():
            if is_op(use.node, "Shape", "Size"):
                continue
            row = find_row(use.node)
            as_data = (
                row is not None
                and refused[use.node.name] is None
                and (use.idx in row.data(use.node))
            )
            readers.append(use.node.name if as_data else outside)
            if as_data and _weighted(use.node):
                weighted.append(use.node.name)
        source = outside if producer is None else producer.name
        leave = elements * (DEQUANTIZE_PRICE + layout)
        yield Tie(source, tuple(readers), leave, elements * (QUANTIZE_PRICE + layout))
        if weighted:  # a matrix product takes static codes only from an op that computes them
            origin = _computing_producer(value)
            maker = outside if origin is None else origin.name
            yield Tie(maker, tuple(weighted), 0.0, FORBIDDEN)


def _computing_producer(value: ir.Value) -> ir.Node | None:
    """The op that computed the values, seen through ops that only move them."""
    producer = value.producer()
    while producer is not None:
        row = find_row(producer)
        if row is None or row.output is not OutputGrid.SHARED or is_op(producer, "Relu", "Clip"):
            return producer
        source = producer.inputs[row.data(producer)[0]]
        producer = None if source is None else source.producer()
    return None


def real_values(model: ir.Model) -> Iterator[ir.Value]:
    """Every float value that is computed or given at run time, bodies included."""
    for graph in graphs(model):
        for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
            if is_float(value) and not is_constant(value):
                yield value


def _is_absorbed(node: ir.Node, integer: frozenset[str]) -> bool:
    """Whether a Relu or Clip can become the range of its producer's grid."""
    if node.name not in integer or not is_op(node, "Relu", "Clip") or node.inputs[0] is None:
        return False
    producer, bounds = node.inputs[0].producer(), clip_bounds(node)
    if producer is None or producer.name not in integer or producer.graph is not node.graph:
        return False
    row = find_row(producer)
    contains_zero = bounds is not None and bounds[0] <= 0 <= bounds[1]
    return (
        row is not None
        and row.output is OutputGrid.OWN
        and contains_zero
        and only_consumer(node.inputs[0]) is node
    )


def _observed(
    every: list[ir.Node], integer: frozenset[str], absorbed: frozenset[str]
) -> dict[str, str]:
    """The values that need a range of their own → the node whose recipe says how."""
    found: dict[str, str] = {}
    for node in every:
        if node.name not in integer:
            continue
        row = find_row(node)
        assert row is not None
        for index in row.data(node):
            value = node.inputs[index]
            if is_float(value) and value is not None and not is_constant(value):
                root = grid_root(value, integer, absorbed)
                if root is not None:
                    found.setdefault(root.name or "", node.name or "")
        root = grid_root(node.outputs[0], integer, absorbed)
        if root is not None:
            producer = root.producer()
            governs = producer.name if producer is not None and producer.name in integer else None
            found[root.name or ""] = governs or found.get(root.name or "", node.name or "")
    return found


def grid_root(
    value: ir.Value, integer: frozenset[str], absorbed: frozenset[str]
) -> ir.Value | None:
    """The value whose observed range gives this one's grid; None where the grid is known.

    Goes back through ops on codes that only move values, and forward from a producer whose Relu
    or Clip is absorbed to that one's output.
    """
    producer = value.producer()
    if producer is None or producer.name not in integer:
        return value
    row = find_row(producer)
    assert row is not None
    if producer.name in absorbed:
        return value
    consumer = only_consumer(value)
    if consumer is not None and consumer.name in absorbed:
        return consumer.outputs[0]
    if row.output is OutputGrid.SHARED:
        source = producer.inputs[row.data(producer)[0]]
        assert source is not None
        return grid_root(source, integer, absorbed)
    return None if row.output is OutputGrid.FIXED else value
