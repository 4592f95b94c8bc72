"""Pooling and means."""

from __future__ import annotations

import onnx_ir as ir

from lucid_fx.ir.walk import attribute, constant, input_at, rank
from lucid_fx.ops.emit import CONTRIB, Emit, Grid, Quantized
from lucid_fx.ops.row import Lower, Operand, OpRow, OutputGrid


def _lower_average(op_type: str) -> Lower:
    kept = ("kernel_shape", "strides", "pads", "ceil_mode", "count_include_pad", "auto_pad")

    def lower(
        emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
    ) -> list[ir.Value]:
        x, y = inputs[0], outputs[0]
        assert isinstance(x, Quantized) and y is not None
        attributes = {name: node.attributes[name].value for name in kept if name in node.attributes}
        args = [*x.args, y.scale, y.zero_point]
        return [emit.op(op_type, args, attributes, domain=CONTRIB, like=node.outputs[0])]

    return lower


def _lower_maxpool(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    x = inputs[0]
    assert isinstance(x, Quantized)
    return [emit.op("MaxPool", [x.codes], node.attributes, like=node.outputs[0])]


def reduced_axes(node: ir.Node) -> list[int] | None:
    """The axes of a reduction, non-negative; None when not known."""
    found = attribute(node, "axes")
    if found is None:
        given = constant(input_at(node, 1))
        found = None if given is None else given.tolist()
    dims = rank(node.inputs[0])
    if found is None or dims is None:
        return None
    return sorted(axis % dims for axis in found)


def _refuse_mean(node: ir.Node) -> str | None:
    if rank(node.inputs[0]) != 4 or reduced_axes(node) != [2, 3]:
        return "it is no mean over both image axes"
    if not attribute(node, "keepdims", 1):
        return "it drops the image axes"
    return None


def _refuse_maxpool(node: ir.Node) -> str | None:
    if len(node.outputs) > 1 and node.outputs[1].uses():
        return "its indices are used"
    if rank(node.inputs[0]) != 4:
        return "only two-dimensional pooling has an integer kernel"
    if any(d != 1 for d in attribute(node, "dilations", [1])):
        return "it is dilated"
    return None


def _refuse_average(node: ir.Node) -> str | None:
    if rank(node.inputs[0]) != 4:
        return "only two-dimensional pooling has an integer kernel"
    if any(d != 1 for d in attribute(node, "dilations", [1])):
        return "it is dilated"
    return None


FLOAT_MEAN_PRICE = 0.17 + 0.21
"""The mean, and the Transpose that a float pool needs among channels-last neighbours; like all
prices of pooling an element of the input."""

ROWS = (
    OpRow(
        "MaxPool", output=OutputGrid.SHARED, lower=_lower_maxpool, refuses=_refuse_maxpool,
        integer_price=0.06, float_price=0.2,
    ),
    OpRow(
        "AveragePool", lower=_lower_average("QLinearAveragePool"), refuses=_refuse_average,
        integer_price=1.1, float_price=0.19 + 0.21,
    ),
    OpRow(
        "GlobalAveragePool", lower=_lower_average("QLinearGlobalAveragePool"),
        refuses=_refuse_average, integer_price=0.05, float_price=FLOAT_MEAN_PRICE,
    ),
    OpRow(
        "ReduceMean", lower=_lower_average("QLinearGlobalAveragePool"), refuses=_refuse_mean,
        integer_price=0.05, float_price=FLOAT_MEAN_PRICE,
    ),
    OpRow("Softmax", why_float="8 bits round small probabilities to zero", float_price=0.4),
    OpRow(
        "LayerNormalization", why_float="a normalisation needs more than 8 bits in its sums",
        float_price=0.59,
    ),
    OpRow("InstanceNormalization", why_float="a normalisation needs more than 8 bits in its sums"),
    OpRow("BatchNormalization", why_float="there is no linear op in front to fold it into"),
)  # fmt: skip
