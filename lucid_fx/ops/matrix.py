"""Conv, ConvTranspose, Gemm and MatMul: the ops with weights, which all the rest serves."""

from __future__ import annotations

import onnx_ir as ir

from lucid_fx.ir.walk import attribute, constant, input_at, is_constant, rank
from lucid_fx.ops.emit import CONTRIB, Emit, Grid, Quantized
from lucid_fx.ops.row import Operand, OpRow


def _lower_conv(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    x, w, y = inputs[0], inputs[1], outputs[0]
    assert isinstance(x, Quantized) and isinstance(w, Quantized) and y is not None
    args: list[ir.Value | None] = [*x.args, *w.args, y.scale, y.zero_point]
    if len(inputs) > 2 and isinstance(inputs[2], Quantized):
        args.append(inputs[2].codes)
    return [emit.op("QLinearConv", args, node.attributes, like=node.outputs[0])]


def _lower_matmul(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    a, b, y = inputs[0], inputs[1], outputs[0]
    assert isinstance(a, Quantized) and isinstance(b, Quantized)
    if y is None:
        args = [a.codes, b.codes, a.grid.scale, b.grid.scale, a.grid.zero_point, b.grid.zero_point]
        return [emit.op("MatMulIntegerToFloat", args, domain=CONTRIB, like=node.outputs[0])]
    args = [*a.args, *b.args, y.scale, y.zero_point]
    return [emit.op("QLinearMatMul", args, like=node.outputs[0])]


def _lower_gemm(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    a, b, y = inputs[0], inputs[1], outputs[0]
    assert isinstance(a, Quantized) and isinstance(b, Quantized)
    bias = inputs[2].codes if len(inputs) > 2 and isinstance(inputs[2], Quantized) else None
    args: list[ir.Value | None] = [*a.args, *b.args, bias]
    if y is not None:
        args += [y.scale, y.zero_point]
    attributes = {
        name: attribute(node, name, default)
        for name, default in (("alpha", 1.0), ("transA", 0), ("transB", 0))
    }
    return [emit.op("QGemm", args, attributes, domain=CONTRIB, like=node.outputs[0])]


def _refuse_conv(node: ir.Node) -> str | None:
    if not is_constant(input_at(node, 1)):
        return "its weight is computed at run time"
    if len(node.inputs) > 2 and node.inputs[2] is not None and not is_constant(node.inputs[2]):
        return "its bias is computed at run time"
    return None


def _refuse_matmul(node: ir.Node) -> str | None:
    weight = node.inputs[1]
    if not is_constant(weight):
        return "both operands are computed at run time; 8 bits would round attention scores"
    if rank(weight) != 2:
        return "its weight is not a matrix"
    return None


def _refuse_gemm(node: ir.Node) -> str | None:
    if not is_constant(node.inputs[1]):
        return "its weight is computed at run time"
    if attribute(node, "transA", 0):
        return "its data operand is transposed"
    if attribute(node, "alpha", 1.0) <= 0:
        return "alpha is not positive"
    bias = constant(input_at(node, 2))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        columns = (node.inputs[1].const_value.shape)[0 if attribute(node, "transB", 0) else 1]  # type: ignore[union-attr]
        if (
            bias is None
            or bias.size not in (1, columns)
            or bias.shape[-1:] not in ((), (columns,), (1,))
        ):
            return "its bias is not one constant for each column"
    return None


def _gemm_axis(node: ir.Node) -> int:
    return 0 if attribute(node, "transB", 0) else 1


ROWS = (
    OpRow("Conv", weight=1, bias=2, lower=_lower_conv, refuses=_refuse_conv, anchor=True),
    OpRow(
        "ConvTranspose",
        weight=1,
        weight_axis=lambda node: 1,
        bias=2,
        why_float="onnxruntime has no integer ConvTranspose on CPU",
    ),
    OpRow(
        "MatMul",
        weight=1,
        weight_axis=lambda node: 1,
        lower=_lower_matmul,
        refuses=_refuse_matmul,
        anchor=True,
    ),
    OpRow(
        "Gemm",
        weight=1,
        weight_axis=_gemm_axis,
        bias=2,
        lower=_lower_gemm,
        refuses=_refuse_gemm,
        anchor=True,
    ),
)
