"""Ops that only move, select or join values: they run on codes as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.walk import attribute, constant, input_at, is_constant
from lucid_fx.ops.emit import CONTRIB, Emit, Grid, Quantized
from lucid_fx.ops.row import Operand, OpRow, OutputGrid


def _same(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> Sequence[ir.Value]:
    """The same op with codes in place of the data."""
    args = [x.codes if isinstance(x, Quantized) else x for x in inputs]
    count = len(node.outputs)
    values = emit.ops(node.op_type, args, node.attributes, domain=node.domain, outputs=count)
    for new, old in zip(values, node.outputs, strict=True):
        new.shape = old.shape
    return values


def _lower_pad(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    x = inputs[0]
    assert isinstance(x, Quantized)
    scale, zero = x.grid.arrays()
    value = constant(input_at(node, 2))
    real = 0.0 if value is None else float(value.reshape(-1)[0])
    limits = np.iinfo(zero.dtype)
    code = np.clip(np.rint(real / scale) + int(zero), limits.min, limits.max)
    fill = emit.constant(np.asarray(code, zero.dtype), f"{node.name}_fill")
    pads, axes = node.inputs[1], input_at(node, 3)
    args = [x.codes, pads, fill, *([axes] if axes is not None else [])]
    return [emit.op("Pad", args, node.attributes, like=node.outputs[0])]


def _refuse_pad(node: ir.Node) -> str | None:
    value = input_at(node, 2)
    if value is not None and not is_constant(value):
        return "its fill value is computed at run time"
    return None


def _all_inputs(node: ir.Node) -> tuple[int, ...]:
    return tuple(range(len(node.inputs)))


def _lower_concat(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    y = outputs[0]
    assert y is not None
    args = [y.scale, y.zero_point]
    for x in inputs:
        assert isinstance(x, Quantized)
        args += x.args
    axis = {"axis": attribute(node, "axis", 0)}
    return [emit.op("QLinearConcat", args, axis, domain=CONTRIB, like=node.outputs[0])]


def _lower_where(
    emit: Emit, node: ir.Node, inputs: list[Operand], outputs: list[Grid | None]
) -> list[ir.Value]:
    condition, x, y, z = inputs[0], inputs[1], inputs[2], outputs[0]
    assert isinstance(x, Quantized) and isinstance(y, Quantized) and z is not None
    assert isinstance(condition, ir.Value)
    args = [condition, *x.args, *y.args, z.scale, z.zero_point]
    return [emit.op("QLinearWhere", args, domain=CONTRIB, like=node.outputs[0])]


def _refuse_resize(node: ir.Node) -> str | None:
    mode = attribute(node, "mode", "nearest")
    if mode not in ("nearest", "linear"):
        return f"onnxruntime has no integer kernel for mode {mode}"
    if attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        return "it extrapolates"
    if mode == "linear":
        return "linear interpolation on codes is slower than in float"
    return None


def _refuse_gather(node: ir.Node) -> str | None:
    return "it reads a constant table" if is_constant(node.inputs[0]) else None


def _moves(op_type: str, price: float = 0.03, refuses: object = None) -> OpRow:
    return OpRow(
        op_type,
        output=OutputGrid.SHARED,
        lower=_same,  # type: ignore[arg-type]
        refuses=refuses or (lambda node: None),  # type: ignore[arg-type]
        integer_price=price,
        float_price=3 * price,
    )


ROWS = (
    *(_moves(op) for op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")),
    _moves("Transpose", 0.07),
    _moves("Slice"),
    _moves("Split"),
    _moves("Expand"),
    _moves("Tile"),
    _moves("DepthToSpace", 0.1),
    _moves("SpaceToDepth", 0.1),
    _moves("Gather", refuses=_refuse_gather),
    _moves("Resize", 0.03, _refuse_resize),
    OpRow(
        "Pad", output=OutputGrid.SHARED, lower=_lower_pad, refuses=_refuse_pad,
        integer_price=0.03, float_price=0.1,
    ),
    OpRow(
        "Concat", data=_all_inputs, lower=_lower_concat, integer_price=0.145, float_price=0.1
    ),
    OpRow(
        "Where", data=lambda node: (1, 2), lower=_lower_where, integer_price=0.3,
        float_price=0.3,
    ),
)  # fmt: skip
