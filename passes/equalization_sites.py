"""Where channel ranges can be evened out: values that are made and read by linear constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.walk import attribute, constant, input_at, is_constant, is_op, only_consumer, rank
from lucid_fx.passes.choose_integer_regions import real_values


@dataclass(frozen=True)
class Site:
    """A value whose channels can be rescaled.

    Attributes:
        value: what the readers read.
        axis: its channel axis.
        makers: nodes whose constants divide it: a Conv, a LayerNormalization, or Mul (and Add);
            none where a Mul has to be put in front of the readers.
        readers: Conv, MatMul and Gemm nodes with constant weights.
        between: further values that the division changes.
    """

    value: ir.Value
    axis: int
    makers: tuple[ir.Node, ...]
    readers: tuple[ir.Node, ...]
    between: tuple[ir.Value, ...]


def find_sites(model: ir.Model) -> Iterator[Site]:
    """All sites of a float model, bodies included."""
    for value in real_values(model):
        readers = linear_readers(value)
        axis = 1 if readers and is_op(readers[0], "Conv") else -1
        made = _makers(value, axis) if readers else None
        if made is not None:
            yield Site(value, axis, made[0], readers, made[1])
        elif axis == 1 and rank(value) is not None and value.producer() is not None:
            yield Site(value, axis, (), readers, ())
        elif products := _matrix_readers(value):
            yield Site(value, -1, (), products, ())


def _matrix_readers(value: ir.Value) -> tuple[ir.Node, ...]:
    """The matrix products with constant weights among the readers, which may be of any kind."""
    found = tuple(
        use.node
        for use in value.uses()
        if use.idx == 0
        and is_op(use.node, "MatMul", "Gemm")
        and is_constant(use.node.inputs[1])
        and rank(use.node.inputs[1]) == 2
        and not attribute(use.node, "transA", 0)
    )
    # one Mul in front of them all: it must reach every reader
    return found if len({id(node.graph) for node in found}) == 1 else ()


def linear_readers(value: ir.Value) -> tuple[ir.Node, ...]:
    """The readers of a value, if all are linear with constant weights and of one kind."""
    if value.is_graph_output() or value.is_graph_input():
        return ()
    found: list[ir.Node] = []
    for use in value.uses():
        node = use.node
        if (
            use.idx != 0
            or not is_op(node, "Conv", "MatMul", "Gemm")
            or not is_constant(node.inputs[1])
        ):
            return ()
        if (is_op(node, "Gemm") and attribute(node, "transA", 0)) or not _plain_group(node):
            return ()
        if rank(node.inputs[1]) != 2 and not is_op(node, "Conv"):
            return ()
        found.append(node)
    if len({is_op(node, "Conv") for node in found}) > 1:
        return ()
    return tuple(found)


def _plain_group(node: ir.Node) -> bool:
    """Whether a Conv is dense or depthwise; other groupings are left alone."""
    if not is_op(node, "Conv"):
        return True
    weight, group = node.inputs[1], attribute(node, "group", 1)
    assert weight is not None and weight.const_value is not None
    return group == 1 or weight.const_value.shape.numpy()[1] == 1


def _makers(value: ir.Value, axis: int) -> tuple[tuple[ir.Node, ...], tuple[ir.Value, ...]] | None:
    """The nodes whose constants can divide a value, and the values between them and it."""
    node, between = value.producer(), list[ir.Value]()
    if node is not None and is_op(node, "Relu") and _single(node.inputs[0], node):
        between.append(node.inputs[0])  # type: ignore[arg-type]
        node = node.inputs[0].producer()  # type: ignore[union-attr]
    if node is None:
        return None
    if is_op(node, "Conv") and axis == 1:
        ready = is_constant(node.inputs[1]) and _constant_or_absent(input_at(node, 2))
        return ((node,), tuple(between)) if ready else None
    if is_op(node, "LayerNormalization") and axis == -1 and len(node.outputs) == 1:
        ready = is_constant(node.inputs[1]) and _constant_or_absent(input_at(node, 2))
        return ((node,), tuple(between)) if ready and rank(node.inputs[1]) == 1 else None
    return _affine(node, between, axis)


def _affine(
    node: ir.Node, between: list[ir.Value], axis: int
) -> tuple[tuple[ir.Node, ...], tuple[ir.Value, ...]] | None:
    """A Mul by a constant, or an Add of a constant to one."""
    makers = [node]
    if is_op(node, "Add"):
        data = data_operand(node, axis)
        if data is None or not _single(data, node):
            return None
        between.append(data)
        factor = data.producer()
        if factor is None:
            return None
        makers.append(factor)
    if not is_op(makers[-1], "Mul") or data_operand(makers[-1], axis) is None:
        return None
    return tuple(makers), tuple(between)


def data_operand(node: ir.Node, axis: int) -> ir.Value | None:
    """The computed operand of a binary node whose other one is constant by channel."""
    for data, other in (node.inputs, reversed(node.inputs)):
        array = constant(other)
        dims = rank(node.outputs[0])
        if array is None or data is None or dims is None or is_constant(data):
            continue
        shape = (1,) * (dims - array.ndim) + array.shape
        varies = [at for at, size in enumerate(shape) if size != 1]
        if array.ndim <= dims and varies in ([], [axis % dims]) and rank(data) == dims:
            return data
    return None


def _single(value: ir.Value | None, node: ir.Node) -> bool:
    return value is not None and only_consumer(value) is node


def _constant_or_absent(value: ir.Value | None) -> bool:
    return value is None or is_constant(value)
