"""Runs a quantized model without onnxruntime: ONNX's reference, and our own integer operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from lucid_fx.ir import integer_ops as ops

_CODECS: dict[str, Callable[..., Any]] = {
    # the evaluator hands them further attributes, at ONNX's defaults
    "QuantizeLinear": lambda x, s, z=None, axis=1, **_: ops.encode(x, s, z, axis=axis),
    "DequantizeLinear": lambda q, s, z=None, axis=1, **_: ops.decode(q, s, z, axis=axis),
}
_CONTRIB: dict[str, Callable[..., Any]] = {
    **_CODECS,
    "QLinearAdd": ops.add,
    "QLinearMul": ops.multiply,
    "QLinearConcat": ops.concat,
    "QLinearWhere": ops.where,
    "QLinearLeakyRelu": ops.leaky_relu,
    "QLinearSigmoid": ops.sigmoid,
    "QLinearAveragePool": ops.average_pool,
    "QLinearGlobalAveragePool": ops.global_average_pool,
    "QLinearConv": ops.conv,
    "QGemm": ops.gemm,
    "MatMulIntegerToFloat": ops.matmul_to_float,
    "DynamicQuantizeMatMul": ops.dynamic_matmul,
    "NhwcMaxPool": lambda x, **window: ops.max_pool(x, channels_last=1, **window),
}
_ONNX: dict[str, Callable[..., Any]] = {
    # ONNX's own reference knows these from opset 19 on
    **_CODECS,
    # ONNX's own reference rounds sums in float32, and pads codes with NaN to pool them
    "QLinearConv": ops.conv,
    "QLinearMatMul": ops.matmul,
    "MaxPool": lambda x, storage_order=0, **window: ops.max_pool(x, **window),
}


def evaluate(
    model: ir.Model, feed: Mapping[str, NDArray[Any]], outputs: list[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Graph outputs by name.

    Args:
        model: any model of ONNX operators and of the contrib operators that we emit.
        feed: arrays by graph input.
        outputs: names of values to give instead of the graph outputs.
    """
    evaluator = ReferenceEvaluator(ir.to_proto(model), new_ops=_OPERATORS)
    names = outputs or [value.name or "" for value in model.graph.outputs]
    return dict(zip(names, evaluator.run(names, dict(feed)), strict=True))


def _operator(domain: str, name: str, function: Callable[..., Any]) -> type[OpRun]:
    def run(self: OpRun, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        given = {key: value for key, value in attributes.items() if value is not None}
        return (function(*inputs, **given),)

    return type(name, (OpRun,), {"op_domain": domain, "_run": run})


_OPERATORS = [
    *(_operator("com.microsoft", name, function) for name, function in _CONTRIB.items()),
    *(_operator("", name, function) for name, function in _ONNX.items()),
]
