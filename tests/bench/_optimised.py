"""What is left to run after onnxruntime's own optimiser: integer, float, and Q/DQ nodes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime as ort

_INTEGER = {
    "ConvInteger",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul",
    "MatMulInteger",
    "MatMulInteger16",
    "MatMulIntegerToFloat",
    "NhwcMaxPool",  # has kernels for 8-bit data only
    "QAttention",
    "QGemm",
}
_FLOAT = {
    *("Conv", "FusedConv", "NhwcFusedConv", "ConvTranspose", "ConvTransposeWithDynamicPads"),
    *("MatMul", "FusedMatMul", "TransposeMatMul", "Gemm", "FusedGemm"),
    *("LSTM", "GRU", "RNN", "Attention", "MultiHeadAttention"),
}
_ELEMENTWISE = {
    *("Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Exp", "Log", "Erf", "Neg", "Abs", "Reciprocal"),
    *("Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu"),
    *("Gelu", "BiasGelu", "FastGelu", "QuickGelu", "Softmax", "BiasSoftmax", "LogSoftmax"),
    *("LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization"),
    *("BatchNormalization", "InstanceNormalization", "ReduceMean", "ReduceSum"),
    *("AveragePool", "GlobalAveragePool", "MaxPool", "Resize"),
}
_FLOAT_TYPES = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE}


@dataclass(frozen=True)
class Counts:
    """Nodes of an optimised graph and of all its subgraphs."""

    integer_nodes: int
    float_nodes: int
    leftover_qdq: int
    float_elementwise: int
    weight_only: int
    dynamic_quantize: int
    transposes: int
    ops: dict[str, int]


def count_optimised(path: Path) -> Counts:
    """Let onnxruntime optimise the model in full, and count what it is going to run."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimised.onnx"
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.optimized_model_filepath = str(target)
        options.log_severity_level = 3
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return count(onnx.load(target))


def count(model: onnx.ModelProto) -> Counts:
    """Count the kinds of nodes."""
    ops: Counter[str] = Counter()
    elementwise = 0
    for graph in _graphs(model.graph):
        types = _element_types(graph)
        for node in graph.node:
            ops[node.op_type] += 1
            if node.op_type in _ELEMENTWISE:
                # what has no known type is taken for float
                elementwise += types.get(node.output[0], onnx.TensorProto.FLOAT) in _FLOAT_TYPES
    return Counts(
        integer_nodes=sum(n for op, n in ops.items() if op in _INTEGER or op[:7] == "QLinear"),
        float_nodes=sum(ops[op] for op in _FLOAT),
        leftover_qdq=ops["QuantizeLinear"] + ops["DequantizeLinear"],
        float_elementwise=elementwise,
        weight_only=ops["MatMulNBits"] + ops["GatherBlockQuantized"],
        dynamic_quantize=ops["DynamicQuantizeLinear"],
        transposes=ops["Transpose"],
        ops=dict(sorted(ops.items())),
    )


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Give a graph and the bodies inside it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in [*attribute.graphs, attribute.g]:
                if body.node:
                    yield from _graphs(body)


def _element_types(graph: onnx.GraphProto) -> dict[str, int]:
    values = [*graph.input, *graph.value_info, *graph.output]
    return {value.name: value.type.tensor_type.elem_type for value in values}
