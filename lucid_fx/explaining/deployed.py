"""The graph that onnxruntime really runs, and what became of each of our nodes in it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from lucid_fx.ir.walk import is_constant, nodes
from lucid_fx.runtime.session import Session

Arithmetic = Literal["integer", "float", "weight-only", "qdq", "other"]
"""What a node computes with: codes, real numbers, real numbers and weights on codes, the way
between codes and real numbers, or neither (shapes, data movement, control flow)."""

INTEGER_OPS = frozenset(
    {
        "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger",
        "MatMulInteger16", "MatMulIntegerToFloat", "NhwcMaxPool", "QAttention", "QGemm",
    }
)  # fmt: skip
WEIGHT_ONLY_OPS = frozenset({"MatMulNBits", "MatMulInt4", "GatherBlockQuantized"})
QDQ_OPS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
PRODUCTS = frozenset(
    {
        "Conv", "FusedConv", "NhwcFusedConv", "ConvTranspose", "ConvTransposeWithDynamicPads",
        "MatMul", "FusedMatMul", "TransposeMatMul", "Gemm", "FusedGemm", "LSTM", "GRU", "RNN",
        "Attention", "MultiHeadAttention",
    }
)  # fmt: skip
"""Float ops with most of the work: what quantization is for."""
ELEMENTWISE = frozenset(
    {
        "Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Exp", "Log", "Erf", "Neg", "Abs", "Reciprocal",
        "Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu",
        "Gelu", "BiasGelu", "FastGelu", "QuickGelu", "Softmax", "BiasSoftmax", "LogSoftmax",
        "LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization",
        "BatchNormalization", "InstanceNormalization", "ReduceMean", "ReduceSum", "AveragePool",
        "GlobalAveragePool", "MaxPool", "Resize",
    }
)  # fmt: skip

_REAL = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)


def arithmetic(node: ir.Node) -> Arithmetic:
    """What a node of an optimised graph computes with."""
    op = node.op_type
    if op in INTEGER_OPS or op.startswith("QLinear"):
        return "integer"
    if op in WEIGHT_ONLY_OPS:
        return "weight-only"
    if op in QDQ_OPS:
        return "qdq"
    if op in PRODUCTS:
        return "float"
    real = not node.outputs or node.outputs[0].dtype is None or node.outputs[0].dtype in _REAL
    return "float" if op in ELEMENTWISE and real else "other"


@dataclass(frozen=True)
class Fate:
    """What became of one node of the model.

    Attributes:
        node, op_type: the node as it stands in the file.
        fate: ``kept``, ``fused`` into another node, ``folded`` into a constant, or ``removed``.
        into: the node of the optimised graph that does its work; empty where there is none.
        into_op: its op type.
        arithmetic: what that node computes with.
    """

    node: str
    op_type: str
    fate: Literal["kept", "fused", "folded", "removed"]
    into: str
    into_op: str
    arithmetic: Arithmetic


class Deployed:
    """A model beside what onnxruntime makes of it.

    Args:
        model: as it is in the file.
        threads: intra-op threads of the session.

    Raises:
        ModelError: onnxruntime does not take the model.
    """

    def __init__(self, model: ir.Model, *, threads: int = 1) -> None:
        self.model = model
        with tempfile.TemporaryDirectory(prefix="lucid_fx.") as folder:
            path = Path(folder) / "optimised.onnx"
            Session(model, threads=threads, optimized_path=path)
            self.optimised: ir.Model = ir.load(path).clone()
        name_nodes(self.optimised)

    @cached_property
    def fates(self) -> list[Fate]:
        """One for each node of the model, in its order."""
        return list(self._fates())

    def counts(self) -> Counter[str]:
        """Number of nodes of the optimised graph by `Arithmetic`."""
        return Counter(arithmetic(node) for node in nodes(self.optimised))

    def ops(self) -> Counter[str]:
        """Number of nodes of the optimised graph by op type."""
        return Counter(node.op_type for node in nodes(self.optimised))

    @cached_property
    def independent(self) -> set[ir.Value]:
        """Computed values of the optimised graph that do not depend on the inputs of the model."""
        return _independent(self.optimised)

    def inserted(self, *op_types: str) -> list[ir.Node]:
        """Nodes of these types that onnxruntime put in: no node of ours has their name."""
        ours = {node.name for node in nodes(self.model)}
        return [
            node
            for node in nodes(self.optimised)
            if node.op_type in op_types and node.name not in ours
        ]

    def _fates(self) -> Iterator[Fate]:
        named = {node.name: node for node in nodes(self.optimised)}
        makers = {output.name: node for node in nodes(self.optimised) for output in node.outputs}
        known = _independent(self.model)
        for node in nodes(self.model):
            same = named.get(node.name)
            if same is not None and _same_op(node, same):
                yield _fate(node, "kept", same)
                continue
            maker = next((makers[o.name] for o in node.outputs if o.name in makers), None)
            if maker is None and all(
                v is None or is_constant(v) or v in known for v in node.inputs
            ):
                yield _fate(node, "folded", None)
                continue
            maker = maker or same or _reader_below(node, makers)
            yield _fate(node, "removed" if maker is None else "fused", maker)


def name_nodes(model: ir.Model) -> None:
    """Give every node a name; onnxruntime leaves some of its own without."""
    taken = {node.name for node in nodes(model)}
    for number, node in enumerate(nodes(model)):
        if not node.name:
            name = f"{node.op_type}#{number}"
            node.name = name if name not in taken else f"{name}'"


def _same_op(ours: ir.Node, theirs: ir.Node) -> bool:
    """Whether a node stands for itself: the op may have got a layout, not another meaning."""
    plain = theirs.op_type.removeprefix("Nhwc")
    return plain in (ours.op_type, f"Fused{ours.op_type}")


def _independent(model: ir.Model) -> set[ir.Value]:
    """Computed values that do not depend on the inputs of the model."""
    found = set[ir.Value]()
    for node in nodes(model):
        inputs = [value for value in node.inputs if value is not None]
        if node.inputs and all(is_constant(value) or value in found for value in inputs):
            found.update(node.outputs)
    return found


def _reader_below(node: ir.Node, makers: dict[str | None, ir.Node]) -> ir.Node | None:
    """The node of the optimised graph that makes the nearest value below: it took this one in."""
    level, seen = [node], {node}
    while level:
        below = list(dict.fromkeys(s for n in level for s in n.successors() if s not in seen))
        for reader in below:
            for output in reader.outputs:
                if output.name in makers:
                    return makers[output.name]
        seen.update(below)
        level = below
    return None


def _fate(
    node: ir.Node, fate: Literal["kept", "fused", "folded", "removed"], into: ir.Node | None
) -> Fate:
    if into is None:
        return Fate(node.name or "", node.op_type, fate, "", "", "other")
    return Fate(
        node.name or "", node.op_type, fate, into.name or "", into.op_type, arithmetic(into)
    )
