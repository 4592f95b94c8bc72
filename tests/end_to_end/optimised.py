"""The graph that onnxruntime really runs, for tests that count nodes in it."""

import tempfile
from collections import Counter
from pathlib import Path

import onnx_ir as ir

from lucid_fx.ir.walk import nodes
from lucid_fx.runtime.session import Session

WEIGHTED = ("Conv", "FusedConv", "MatMul", "FusedMatMul", "Gemm", "FusedGemm")


def optimised(model: ir.Model) -> ir.Model:
    """The model as onnxruntime's optimiser leaves it, bodies included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        Session(model, threads=1, optimized_path=path)
        return ir.load(path).clone()


def dequantized_weighted(model: ir.Model) -> list[str]:
    """Float ops whose weight is dequantized at every run: integer ones that did not become so."""
    return [
        f"{node.op_type} {node.name}"
        for node in nodes(model)
        if node.op_type in WEIGHTED and _is_dequantized_constant(node.inputs[1])
    ]


def _is_dequantized_constant(value: ir.Value | None) -> bool:
    producer = value.producer() if value is not None else None
    if producer is None or producer.op_type != "DequantizeLinear":
        return False
    return producer.inputs[0] is not None and producer.inputs[0].const_value is not None


def op_counts(model: ir.Model) -> Counter[str]:
    """Number of nodes of each op type."""
    return Counter(node.op_type for node in nodes(model))
