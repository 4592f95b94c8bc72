"""How an op runs channels-last: which inputs are images, what it costs, how its attributes turn.

An image is a tensor of rank 3 or more whose axis 1 holds channels; channels-last moves that axis
to the end. Part of the op table: the layout pass knows no op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.partition import FORBIDDEN
from lucid_fx.ir.walk import ONNX_DOMAINS, attribute, constant, input_at, is_constant, rank
from lucid_fx.ops.emit import CONTRIB, Emit

Prices = Callable[[ir.Node, Callable[[ir.Value], int]], tuple[float, float]]
Write = Callable[[Emit, ir.Node, list[ir.Value | None]], Sequence[ir.Value]]


@dataclass(frozen=True)
class LayoutRule:
    """How one op is turned.

    Attributes:
        images: indexes of the inputs that are images of the output's rank.
        prices: nanoseconds of running channels-last and channels-first, beside Transposes.
        write: writes the turned node; image inputs are already turned.
    """

    images: Callable[[ir.Node], tuple[int, ...]]
    prices: Prices
    write: Write


def to_last(dims: int) -> list[int]:
    """The permutation from channels-first to channels-last."""
    return [0, *range(2, dims), 1]


def to_first(dims: int) -> list[int]:
    """The permutation from channels-last to channels-first."""
    return [0, dims - 1, *range(1, dims - 1)]


def find_rule(node: ir.Node) -> LayoutRule | None:
    """The rule of a node, None where it must run channels-first."""
    domain = "" if node.domain in ONNX_DOMAINS else node.domain
    rule = _RULES.get((domain, node.op_type))
    dims = rank(node.outputs[0])
    if rule is None or dims is None or dims < 3 or attribute(node, "channels_last", 0):
        return None
    images = [node.inputs[index] for index in rule.images(node)]
    if not any(value is not None and not is_constant(value) for value in images):
        return None
    for value in images:
        if value is None or (rank(value) != dims and not is_constant(value)):
            return None
    return rule


def turned_constant(array: NDArray[Any], dims: int) -> NDArray[Any]:
    """A constant operand of a channels-first op, for the channels-last one."""
    if array.size == 1:
        return array
    full = array.reshape((1,) * (dims - array.ndim) + array.shape)
    return np.ascontiguousarray(full.transpose(to_last(dims)))


def _free(node: ir.Node, size: Callable[[ir.Value], int]) -> tuple[float, float]:
    return 0.0, 0.0


def _priced(last: float, first: float) -> Prices:
    def prices(node: ir.Node, size: Callable[[ir.Value], int]) -> tuple[float, float]:
        largest = max(size(v) for v in (node.outputs[0], node.inputs[0]) if v is not None)
        return last * largest, first * largest

    return prices


def _only_last(node: ir.Node, size: Callable[[ir.Value], int]) -> tuple[float, float]:
    """A Conv run channels-first transposes both its input and its output inside."""
    assert node.inputs[0] is not None
    return 0.0, 0.09 * (size(node.inputs[0]) + size(node.outputs[0]))


def _at(*indexes: int) -> Callable[[ir.Node], tuple[int, ...]]:
    return lambda node: indexes


def _same(emit: Emit, node: ir.Node, inputs: list[ir.Value | None]) -> Sequence[ir.Value]:
    return emit.ops(
        node.op_type, inputs, node.attributes, domain=node.domain, outputs=len(node.outputs)
    )


def _flagged(emit: Emit, node: ir.Node, inputs: list[ir.Value | None]) -> Sequence[ir.Value]:
    """The contrib form that has a ``channels_last`` attribute."""
    attributes = dict(node.attributes) | {"channels_last": ir.AttrInt64("channels_last", 1)}
    return emit.ops(node.op_type, inputs, attributes, domain=CONTRIB)


def _max_pool(emit: Emit, node: ir.Node, inputs: list[ir.Value | None]) -> Sequence[ir.Value]:
    attributes = {k: a for k, a in node.attributes.items() if k != "storage_order"}
    return emit.ops("NhwcMaxPool", inputs, attributes, domain=CONTRIB)


def _max_pool_prices(node: ir.Node, size: Callable[[ir.Value], int]) -> tuple[float, float]:
    if node.inputs[0] is None or node.inputs[0].dtype not in (ir.DataType.UINT8, ir.DataType.INT8):
        return FORBIDDEN, 0.0
    if rank(node.outputs[0]) != 4 or len(node.outputs) > 1:
        return FORBIDDEN, 0.0
    window = float(np.prod(attribute(node, "kernel_shape", [1])))
    return 0.02 * window * size(node.outputs[0]), 1.6 * window * size(node.outputs[0])


def _along_axis(emit: Emit, node: ir.Node, inputs: list[ir.Value | None]) -> Sequence[ir.Value]:
    dims = rank(node.outputs[0])
    assert dims is not None
    axis = attribute(node, "axis", 0) % dims
    attributes = dict(node.attributes) | {"axis": ir.AttrInt64("axis", to_last(dims).index(axis))}
    return emit.ops(node.op_type, inputs, attributes, domain=node.domain, outputs=len(node.outputs))


def _turn_operand(node: ir.Node, index: int, halves: int, emit: Emit) -> ir.Value | None:
    """A constant with ``halves`` entries for each axis, in the new order of axes."""
    value = input_at(node, index)
    array = constant(value)
    if array is None or array.size == 0:
        return value
    rows = array.reshape(halves, -1)
    turned = rows[:, to_last(rows.shape[1])].reshape(-1)
    return emit.constant(np.ascontiguousarray(turned), f"{node.name}_turned")


def _pad(emit: Emit, node: ir.Node, inputs: list[ir.Value | None]) -> Sequence[ir.Value]:
    return _same(emit, node, [inputs[0], _turn_operand(node, 1, 2, emit), *inputs[2:]])


def _pad_prices(node: ir.Node, size: Callable[[ir.Value], int]) -> tuple[float, float]:
    plain = is_constant(input_at(node, 1)) and input_at(node, 3) is None
    return (0.0 if plain else FORBIDDEN), 0.0


def _resize(emit: Emit, node: ir.Node, inputs: list[ir.Value | None]) -> Sequence[ir.Value]:
    turned = [_turn_operand(node, index, 1, emit) for index in range(2, len(node.inputs))]
    return _same(emit, node, [*inputs[:2], *turned])


def _resize_prices(node: ir.Node, size: Callable[[ir.Value], int]) -> tuple[float, float]:
    given = [input_at(node, index) for index in (2, 3)]
    plain = all(v is None or is_constant(v) for v in given) and not attribute(node, "axes")
    elements = size(node.outputs[0])
    return (0.84 * elements if plain else FORBIDDEN), 0.03 * elements


_BINARY = LayoutRule(_at(0, 3), _free, _same)
_UNARY = LayoutRule(_at(0), _free, _same)
_FLOAT_BINARY = LayoutRule(_at(0, 1), _free, _same)

_RULES: dict[tuple[str, str], LayoutRule] = {
    ("", "QLinearConv"): LayoutRule(_at(0), _only_last, _flagged),
    (CONTRIB, "QLinearAdd"): _BINARY,
    (CONTRIB, "QLinearMul"): _BINARY,
    (CONTRIB, "QLinearLeakyRelu"): _UNARY,
    (CONTRIB, "QLinearSigmoid"): _UNARY,
    (CONTRIB, "QuickGelu"): _UNARY,
    (CONTRIB, "QLinearGlobalAveragePool"): LayoutRule(_at(0), _free, _flagged),
    (CONTRIB, "QLinearAveragePool"): LayoutRule(_at(0), _priced(1.1, 2.0), _flagged),
    (CONTRIB, "QLinearConcat"): LayoutRule(
        lambda node: tuple(range(2, len(node.inputs), 3)), _free, _along_axis
    ),
    ("", "MaxPool"): LayoutRule(_at(0), _max_pool_prices, _max_pool),
    ("", "Clip"): _UNARY,
    ("", "QuantizeLinear"): _UNARY,
    ("", "DequantizeLinear"): _UNARY,
    (CONTRIB, "QuantizeLinear"): _UNARY,
    (CONTRIB, "DequantizeLinear"): _UNARY,
    ("", "Concat"): LayoutRule(lambda node: tuple(range(len(node.inputs))), _free, _along_axis),
    ("", "Split"): LayoutRule(_at(0), _free, _along_axis),
    ("", "Pad"): LayoutRule(_at(0), _pad_prices, _pad),
    ("", "Resize"): LayoutRule(_at(0), _resize_prices, _resize),
    **{("", op): _FLOAT_BINARY for op in ("Add", "Mul", "Sub", "Div")},
    **{
        ("", op): _UNARY
        for op in (
            "Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Erf", "Gelu", "LeakyRelu",
        )
    },
}  # fmt: skip
