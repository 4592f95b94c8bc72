"""Recognise a layer normalization written out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import (
    attribute,
    constant,
    input_at,
    is_constant,
    is_op,
    nodes,
    only_consumer,
    rank,
    scalar,
    size,
)
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.raise_opset import raise_opset

LAYER_NORM_OPSET = 17


@dataclass(frozen=True)
class FuseLayerNorm(GraphPass):
    """Write mean, difference, variance and quotient over the last axis as LayerNormalization.

    ``m = ReduceMean <axes = [-1]> (x); d = Sub (x, m); q = Pow (d, 2); v = ReduceMean <axes = [-1]>
    (q); e = Add (v, eps); s = Sqrt (e); n = Div (d, s); g = Mul (n, w); y = Add (g, b)`` →
    ``y = LayerNormalization <axis = -1> (x, w, b)``; a norm over more axes than the last stays, and
    so does every one in a model whose operator set cannot be raised to 17.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        found = [norm for node in nodes(model) if (norm := _find(node)) is not None]
        if not found:
            return False
        reason = raise_opset(model, LAYER_NORM_OPSET, self.name)
        names = Names(model)
        for norm in found:
            if reason is None:
                self._write(model, names, norm)
            else:
                ledger_of(model).record(norm.last, "float", f"opset below 17: {reason}", self.name)
        return reason is None

    def _write(self, model: ir.Model, names: Names, norm: Norm) -> None:
        last = norm.last
        emit = Emit(model, names, last, self.name, norm.members)
        inputs = [norm.source, norm.scale, *([norm.bias] if norm.bias is not None else [])]
        output = last.outputs[0]
        new = emit.op(
            "LayerNormalization", inputs, {"axis": -1, "epsilon": norm.epsilon},
            like=output, dtype=output.dtype,
        )  # fmt: skip
        take_place(last, [new])
        graph = last.graph or new.producer().graph  # type: ignore[union-attr]
        assert isinstance(graph, ir.Graph)
        for node in reversed(norm.members[:-1]):
            graph.remove(node, safe=True)


@dataclass(frozen=True)
class Norm:
    """The parts of one written-out normalization; ``members`` in graph order."""

    source: ir.Value
    scale: ir.Value
    bias: ir.Value | None
    epsilon: float
    members: tuple[ir.Node, ...]

    @property
    def last(self) -> ir.Node:
        """The node whose output the normalization gives."""
        return self.members[-1]


def _find(quotient: ir.Node) -> Norm | None:
    """The normalization around a Div, if it is one."""
    core = _core(quotient) if is_op(quotient, "Div") else None
    tail = _affine(quotient, core[0]) if core is not None else None
    if core is None or tail is None:
        return None
    source, epsilon, inner = core
    scale, bias, outer = tail
    members = (*inner, quotient, *outer)
    return Norm(source, scale, bias, epsilon, members) if _closed(members) else None


def _core(quotient: ir.Node) -> tuple[ir.Value, float, tuple[ir.Node, ...]] | None:
    """What is normalized, epsilon, and the nodes from the mean to the deviation."""
    centred, root = _made_by(quotient, 0, "Sub"), _made_by(quotient, 1, "Sqrt")
    shifted, mean = _made_by(root, 0, "Add"), _made_by(centred, 1, "ReduceMean")
    variance, epsilon = (None, None) if shifted is None else _computed_and_scalar(shifted)
    square = _made_by(variance, 0, "Mul", "Pow")
    again = _squared(square) if square is not None else None
    if centred is None or root is None or shifted is None or mean is None or square is None:
        return None
    if again is None or variance is None or epsilon is None or centred.inputs[0] is None:
        return None
    source = centred.inputs[0]
    twin = is_op(again, "Sub") and tuple(again.inputs) == tuple(centred.inputs)
    means = _over_last(mean) and _over_last(variance) and mean.inputs[0] is source
    if not means or not (again is centred or twin):
        return None
    centres = (centred,) if again is centred else (centred, again)
    return source, epsilon, (mean, *centres, square, variance, shifted, root)


def _affine(
    quotient: ir.Node, source: ir.Value
) -> tuple[ir.Value, ir.Value | None, tuple[ir.Node, ...]] | None:
    """Scale and bias, one for each element of the last axis, with their Mul and Add."""
    last = source.shape[-1] if source.shape else None
    scaled = only_consumer(quotient.outputs[0])
    if scaled is None or not is_op(scaled, "Mul"):
        return None
    scale = _vector(scaled, quotient.outputs[0], last)
    if scale is None:
        return None
    moved = only_consumer(scaled.outputs[0])
    if moved is not None and is_op(moved, "Add"):
        bias = _vector(moved, scaled.outputs[0], size(scale))
        if bias is not None:
            return scale, bias, (scaled, moved)
    return scale, None, (scaled,)


def _vector(node: ir.Node, data: ir.Value, width: object) -> ir.Value | None:
    """The other operand, if it is a constant vector as wide as the last axis."""
    other = node.inputs[1] if node.inputs[0] is data else node.inputs[0]
    if not is_constant(other) or rank(other) != 1:
        return None
    array = constant(other)
    known = isinstance(width, int)
    return other if array is not None and (not known or array.size == width) else None


def _computed_and_scalar(node: ir.Node) -> tuple[ir.Node | None, float | None]:
    for data, other in (node.inputs, reversed(node.inputs)):
        number = scalar(other)
        if data is not None and number is not None:
            return data.producer(), number
    return None, None


def _squared(node: ir.Node) -> ir.Node | None:
    """The producer of what a node squares."""
    twice = is_op(node, "Mul") and node.inputs[0] is node.inputs[1]
    power = is_op(node, "Pow") and scalar(node.inputs[1]) == 2.0
    return node.inputs[0].producer() if (twice or power) and node.inputs[0] else None


def _over_last(node: ir.Node) -> bool:
    """Whether a node is a mean over the last axis alone, which it keeps."""
    if not is_op(node, "ReduceMean") or not attribute(node, "keepdims", 1):
        return False
    given = constant(input_at(node, 1))
    axes = attribute(node, "axes") if given is None else given.tolist()
    dims = rank(node.inputs[0])
    return (
        axes is not None
        and len(axes) == 1
        and (axes[0] == -1 or (dims is not None and axes[0] == dims - 1))
    )


def _closed(members: tuple[ir.Node, ...]) -> bool:
    """Whether only the last member is read from outside, and all are in one graph."""
    inside = {id(node) for node in members}
    return all(node.graph is members[0].graph for node in members) and not any(
        value.is_graph_output() or any(id(use.node) not in inside for use in value.uses())
        for node in members[:-1]
        for value in node.outputs
    )


def _made_by(node: ir.Node | None, index: int, *op_types: str) -> ir.Node | None:
    """The producer of an input, if it is one of these ops."""
    value = input_at(node, index) if node is not None else None
    producer = value.producer() if value is not None else None
    return producer if is_op(producer, *op_types) else None
