"""Arithmetic on two operands, and activations: quantized where they join integer regions."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.walk import attribute, constant, input_at, is_constant, is_op, scalar, size
from lucid_fx.ops.emit import CONTRIB, Emit, Grid, Quantized
from lucid_fx.ops.row import Lower, Operand, OpRow, OutputGrid, everything


def _both(node: ir.Node) -> tuple[int, ...]:
    return (0, 1)


def _binary(op_type: str) -> Lower:
    def lower(
        emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
    ) -> list[ir.Value]:
        a, b, y = inputs[0], inputs[1], outputs[0]
        assert isinstance(a, Quantized) and isinstance(b, Quantized) and y is not None
        args = [*a.args, *b.args, y.scale, y.zero_point]
        return [emit.op(op_type, args, domain=CONTRIB, like=node.outputs[0])]

    return lower


def _unary(op_type: str, *attributes: str) -> Lower:
    def lower(
        emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
    ) -> list[ir.Value]:
        x, y = inputs[0], outputs[0]
        assert isinstance(x, Quantized) and y is not None
        kept = {name: node.attributes[name].value for name in attributes if name in node.attributes}
        args = [*x.args, y.scale, y.zero_point]
        return [emit.op(op_type, args, kept, domain=CONTRIB, like=node.outputs[0])]

    return lower


def _lower_tanh(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    """tanh(x) = 2 sigmoid(2x) - 1: the codes of a sigmoid on 1/256 are those on 1/128, 128."""
    x = inputs[0]
    assert isinstance(x, Quantized)
    scale, zero_point = x.grid.arrays()
    doubled = emit.grid(scale * 2, zero_point, zero_point.dtype, f"{node.name}_doubled")
    y = emit.grid(1 / 256, 0, np.uint8, f"{node.name}_sigmoid")
    args = [x.codes, doubled.scale, doubled.zero_point, y.scale, y.zero_point]
    return [emit.op("QLinearSigmoid", args, domain=CONTRIB, like=node.outputs[0])]


def _lower_hard_sigmoid(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    """max(0, min(1, a x + b)) is x + b/a saturated on the grid of [0, 1/a], whose codes it has."""
    x = inputs[0]
    assert isinstance(x, Quantized)
    alpha, beta = attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)
    offset = emit.grid(beta / alpha / 255, 0, np.uint8, f"{node.name}_offset")
    code = emit.constant(np.asarray(255, np.uint8), f"{node.name}_offset_code")
    y = emit.grid(1 / alpha / 255, 0, np.uint8, f"{node.name}_clipped")
    args = [*x.args, code, offset.scale, offset.zero_point, y.scale, y.zero_point]
    return [emit.op("QLinearAdd", args, domain=CONTRIB, like=node.outputs[0])]


def clip_bounds(node: ir.Node) -> tuple[float, float] | None:
    """The range that a Relu or Clip lets through; None when it is computed at run time."""
    if node.op_type == "Relu":
        return 0.0, float("inf")
    bounds = []
    for index, default in ((1, -float("inf")), (2, float("inf"))):
        value = input_at(node, index)
        bound = default if value is None else scalar(value)
        if bound is None:
            return None
        bounds.append(bound)
    return bounds[0], bounds[1]


def _lower_clip(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    x, bounds = inputs[0], clip_bounds(node)
    assert isinstance(x, Quantized) and bounds is not None
    scale, zero = x.grid.arrays()
    limits = np.iinfo(zero.dtype)
    codes = [
        np.clip(np.rint(np.clip(bound / scale, -1e6, 1e6)) + int(zero), limits.min, limits.max)
        for bound in bounds
    ]
    low, high = (
        emit.constant(np.asarray(code, zero.dtype), f"{node.name}_{end}")
        for code, end in zip(codes, ("min", "max"), strict=True)
    )
    return [emit.op("Clip", [x.codes, low, high], like=node.outputs[0])]


def _hard_sigmoid_range(node: ir.Node) -> tuple[float, float]:
    alpha, beta = attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)
    return (-beta / alpha, (1 - beta) / alpha) if alpha > 0 else everything(node)


def _clip_range(node: ir.Node) -> tuple[float, float]:
    return clip_bounds(node) or everything(node)


def _mul_range(node: ir.Node) -> tuple[float, float]:
    """x · gate(x) is (nearly) zero where the gate is shut, so x need not be told apart there."""
    gate = gate_of(node, "HardSigmoid", "Sigmoid")
    if gate is None:
        return everything(node)
    shut = _hard_sigmoid_range(gate)[0] if is_op(gate, "HardSigmoid") else -9.0
    return shut, float("inf")


def gate_of(node: ir.Node, *gates: str) -> ir.Node | None:
    """The gate of a Mul that computes x · gate(x), of one of these ops; None for other nodes."""
    if not is_op(node, "Mul"):
        return None
    for data, other in (node.inputs, reversed(node.inputs)):
        gate = other.producer() if other is not None else None
        if gate is not None and is_op(gate, *gates) and gate.inputs[0] is data:
            return gate
    return None


def _refuse_clip(node: ir.Node) -> str | None:
    return None if clip_bounds(node) is not None else "its bounds are computed at run time"


def _refuse_binary(node: ir.Node) -> str | None:
    if all(is_constant(value) for value in node.inputs):
        return "it is constant"
    return None


def _refuse_hard_sigmoid(node: ir.Node) -> str | None:
    if attribute(node, "alpha", 0.2) <= 0 or attribute(node, "beta", 0.5) <= 0:
        return "its slope or offset is not positive"
    return None


def _refuse_leaky(node: ir.Node) -> str | None:
    return None


def _lower_prelu(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    x, y = inputs[0], outputs[0]
    assert isinstance(x, Quantized) and y is not None
    args = [*x.args, y.scale, y.zero_point]
    alpha = {"alpha": scalar(node.inputs[1])}
    return [emit.op("QLinearLeakyRelu", args, alpha, domain=CONTRIB, like=node.outputs[0])]


def _refuse_prelu(node: ir.Node) -> str | None:
    slope = node.inputs[1]
    if slope is None or size(slope) != 1 or constant(slope) is None:
        return "its slope differs by channel, and onnxruntime's integer kernel has one slope"
    return None


def _lower_swish(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    """x · sigmoid(x), the gate on the fixed grid of Sigmoid."""
    x, y = inputs[0], outputs[0]
    assert isinstance(x, Quantized) and y is not None
    gate = emit.grid(1 / 256, 0, np.uint8, f"{node.name}_gate")
    shut = emit.op(
        "QLinearSigmoid", [*x.args, gate.scale, gate.zero_point], domain=CONTRIB,
        dtype=ir.DataType.UINT8, like=node.outputs[0],
    )  # fmt: skip
    args = [*x.args, shut, gate.scale, gate.zero_point, y.scale, y.zero_point]
    return [emit.op("QLinearMul", args, domain=CONTRIB, like=node.outputs[0])]


def _refuse_swish(node: ir.Node) -> str | None:
    return None if attribute(node, "alpha", 1.702) == 1.0 else NONLINEAR


NONLINEAR = "a curved function on 8 bits has no exact kernel in onnxruntime"

ROWS = (
    OpRow(
        "Add", data=_both, lower=_binary("QLinearAdd"), refuses=_refuse_binary,
        integer_price=0.155, float_price=0.164,
    ),
    OpRow(
        "Mul", data=_both, lower=_binary("QLinearMul"), refuses=_refuse_binary, matters=_mul_range,
        integer_price=0.23, float_price=0.164,
    ),
    OpRow("Sub", data=_both, why_float="onnxruntime has no integer Sub", float_price=0.164),
    OpRow("Div", data=_both, why_float="onnxruntime has no integer Div", float_price=0.164),
    OpRow(
        "Relu", output=OutputGrid.SHARED, lower=_lower_clip, matters=_clip_range,
        integer_price=0.033, float_price=0.117,
    ),
    OpRow(
        "Clip", output=OutputGrid.SHARED, lower=_lower_clip, refuses=_refuse_clip,
        matters=_clip_range,
        integer_price=0.033, float_price=0.117,
    ),
    OpRow(
        "LeakyRelu", lower=_unary("QLinearLeakyRelu", "alpha"), integer_price=0.256,
        float_price=0.2,
    ),
    OpRow(
        "PRelu", lower=_lower_prelu, refuses=_refuse_prelu, integer_price=0.256, float_price=0.2
    ),
    OpRow(
        "Sigmoid", output=OutputGrid.FIXED, fixed=(1 / 256, 0), lower=_unary("QLinearSigmoid"),
        matters=lambda node: (-6.25, 6.25),  # beyond, the codes are 0 and 255
        integer_price=0.257, float_price=0.3,
    ),
    OpRow(
        "Tanh", output=OutputGrid.FIXED, fixed=(1 / 128, 128), lower=_lower_tanh,
        matters=lambda node: (-2.8, 2.8),  # beyond, the codes are 0 and 255
        integer_price=0.257, float_price=0.5,
    ),
    OpRow(
        "HardSigmoid", output=OutputGrid.FIXED, fixed=(1 / 255, 0), lower=_lower_hard_sigmoid,
        refuses=_refuse_hard_sigmoid, matters=_hard_sigmoid_range,
        integer_price=0.098, float_price=0.158,
    ),
    OpRow(
        "QuickGelu", domain=CONTRIB, lower=_lower_swish, refuses=_refuse_swish,
        matters=lambda node: (-9.0, float("inf")),  # below, x · sigmoid(x) is nearly zero
        integer_price=0.48,
        float_price=0.3,
    ),
    OpRow("HardSwish", why_float=NONLINEAR, float_price=0.3),
    OpRow("Gelu", why_float=NONLINEAR, float_price=0.64),
    OpRow("Gelu", domain=CONTRIB, why_float=NONLINEAR, float_price=0.64),
    OpRow("Erf", why_float=NONLINEAR, float_price=0.5),
)  # fmt: skip
