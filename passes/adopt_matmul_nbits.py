"""Weights that are on codes already, repacked for MatMulInt4 without a change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.derived import read
from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import attribute, constant, input_at, is_constant, is_op, nodes
from lucid_fx.ops.emit import CONTRIB, Emit
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.weight_operands import Product, WeightOperands, product_node
from lucid_fx.quantization.block import QuantValue, ScaleDtype
from lucid_fx.quantization.weight_only import Compute, QuantizedMatrix, WeightConfig
from lucid_fx.quantization.weight_only.config import BLOCK_SIZES

_SCALES = {ir.DataType.FLOAT: ScaleDtype.F32, ir.DataType.FLOAT16: ScaleDtype.F16}
_CODES = {
    ir.DataType.INT2: 2, ir.DataType.UINT2: 2, ir.DataType.INT4: 4, ir.DataType.UINT4: 4,
    ir.DataType.INT8: 8, ir.DataType.UINT8: 8,
}  # fmt: skip
_SIGNED = (ir.DataType.INT2, ir.DataType.INT4, ir.DataType.INT8)


@dataclass(frozen=True)
class CodedWeight:
    """Codes, scales and zero points as another op holds them.

    Attributes:
        config: what the codes are.
        shape: ``(K, N)``.
        tensor, scales, zeros: as the op takes them.
    """

    config: WeightConfig
    shape: tuple[int, int]
    tensor: ir.TensorProtocol
    scales: ir.TensorProtocol
    zeros: ir.TensorProtocol | None

    @property
    def name(self) -> str:
        """The name of the codes."""
        return self.tensor.name or ""

    def matrix(self) -> QuantizedMatrix:
        """The same weights."""
        codes, scales = read(self.tensor), read(self.scales)
        zeros = None if self.zeros is None else read(self.zeros)
        if codes.shape != self.shape or self.tensor.dtype not in _CODES:
            operands = {"codes": codes, "scales": scales}
            operands |= {} if zeros is None else {"zero_points": zeros}
            return QuantizedMatrix.from_nbits(self.config, *self.shape, operands)
        if self.config.zero_points and zeros is None:
            zeros = np.zeros(scales.shape, codes.dtype)
        stored = None if zeros is None else self._stored(zeros)
        real = np.ascontiguousarray(scales, np.float32)
        return QuantizedMatrix(self.config, self._stored(codes), real, stored)

    def _stored(self, codes: NDArray[Any]) -> NDArray[np.uint8]:
        """Unsigned codes of ONNX's own types."""
        if self.tensor.dtype in _SIGNED:
            codes = codes.astype(np.int16) + self.config.middle
        return np.ascontiguousarray(codes, np.uint8)


@dataclass(frozen=True)
class AdoptMatMulNbits(GraphPass):
    """Repack products on codes; their weights stay the same, bit for bit.

    ``y = com.microsoft.MatMulNBits (x, codes, scales)``, or ``w = DequantizeLinear <axis = 0,
    block_size = 32> (codes, scales); y = MatMul (x, w)`` → ``y = lucid_fx.MatMulInt4 (x, codes2,
    scales2)``; one with reordered groups, float zero points or other blocks stays.

    Attributes:
        compute: how products run; None for what MatMulNBits' accuracy_level says (4 is int8), and
            float32 behind a DequantizeLinear.
    """

    compute: Compute | None = None

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        found = [(node, self._coded(node)) for node in nodes(model)]
        operands = WeightOperands[CodedWeight](model, "matmulint4", lambda w, config: w.matrix())
        changed = False
        for node, weight in found:
            if isinstance(weight, str):
                ledger_of(model).record(node, "refused", weight, self.name)
            if not isinstance(weight, CodedWeight):
                continue
            x = node.inputs[0]
            assert x is not None
            emit = Emit(model, operands.names, node, self.name)
            stored = operands.of(emit, weight, weight.config, x)
            bias = constant(input_at(node, 5)) if node.domain == CONTRIB else None
            real = None if bias is None else bias.astype(np.float32)
            product = Product(x, *weight.shape, weight.config, stored, real)
            output = product_node(emit, "matmulint4", product, node.outputs[0])
            reason = f"repacked for MatMulInt4: {weight.config.op_value}"
            ledger_of(model).record(node, "quantized", reason, self.name)
            take_place(node, [output])
            changed = True
        return changed

    def _coded(self, node: ir.Node) -> CodedWeight | str | None:
        """The weight of a product on codes, why it stays, or None for any other node."""
        if is_op(node, "MatMulNBits", domain=CONTRIB):
            reason = next(_nbits_refusals(node), None)
            return reason if reason is not None else self._of_nbits(node)
        operand = input_at(node, 1) if is_op(node, "MatMul") else None
        source = None if operand is None else operand.producer()
        if source is None or not is_op(source, "DequantizeLinear"):
            return None
        reason = next(_dequantized_refusals(node, source), None)
        return reason if reason is not None else self._of_dequantized(source)

    def _of_nbits(self, node: ir.Node) -> CodedWeight:
        level = attribute(node, "accuracy_level", 0)
        zeros = _tensor(node, 3)
        config = _config(
            attribute(node, "bits", 4), attribute(node, "block_size"), _tensor(node, 2),
            zeros is not None, self.compute or ("int8" if level == 4 else "float32"),
        )  # fmt: skip
        shape = (attribute(node, "K"), attribute(node, "N"))
        return CodedWeight(config, shape, _required(node, 1), _required(node, 2), zeros)

    def _of_dequantized(self, node: ir.Node) -> CodedWeight:
        codes, zeros = _required(node, 0), _tensor(node, 2)
        k, n = (int(size) for size in codes.shape.numpy())
        with_zeros = zeros is not None or codes.dtype not in _SIGNED  # unsigned: zero is code 0
        config = _config(
            _CODES[codes.dtype], attribute(node, "block_size"), _tensor(node, 1), with_zeros,
            self.compute or "float32",
        )  # fmt: skip
        return CodedWeight(config, (k, n), codes, _required(node, 1), zeros)


def _nbits_refusals(node: ir.Node) -> Iterator[str]:
    if input_at(node, 4) is not None:
        yield "its groups are reordered (g_idx), and MatMulInt4 has them in order"
    for index, what in ((1, "codes"), (2, "scales"), (3, "zero points"), (5, "bias")):
        if input_at(node, index) is not None and not is_constant(input_at(node, index)):
            yield f"its {what} are computed"
    zeros, scales = _tensor(node, 3), _required(node, 2)
    if zeros is not None and zeros.dtype != ir.DataType.UINT8:
        yield f"its zero points are {zeros.dtype}, and MatMulInt4 has whole codes"
    if attribute(node, "bits", 4) not in (2, 4, 8):
        yield f"it has codes of {attribute(node, 'bits', 4)} bits"
    if attribute(node, "block_size") not in BLOCK_SIZES:
        yield f"it has blocks of {attribute(node, 'block_size')}"
    if scales.dtype not in _SCALES:
        yield f"it computes in {scales.dtype}"
    if attribute(node, "weight_prepacked", 0):
        yield "its codes are packed for one kind of machine"


def _dequantized_refusals(node: ir.Node, source: ir.Node) -> Iterator[str]:
    tensors = [_tensor(source, index) for index in range(2)]
    if None in tensors or (input_at(source, 2) is not None and _tensor(source, 2) is None):
        yield "its codes, scales or zero points are computed"
    codes, scales = _required(source, 0), _required(source, 1)
    if codes.dtype not in _CODES or len(codes.shape) != 2:
        yield f"its codes are {codes.dtype} with {len(codes.shape)} axes"
    if attribute(source, "block_size", 0) not in BLOCK_SIZES or attribute(source, "axis", 1) != 0:
        yield "its scales are not of blocks of 16 to 256 rows"
    if scales.dtype != ir.DataType.FLOAT or node.inputs[0].dtype != ir.DataType.FLOAT:  # type: ignore[union-attr]
        yield f"its weights are rounded to {scales.dtype}"


def _config(
    bits: int, block: int, scales: ir.TensorProtocol | None, zeros: bool, compute: Compute
) -> WeightConfig:
    assert scales is not None
    value, scale = QuantValue[f"Q{bits}F"], _SCALES[scales.dtype]
    return WeightConfig(value, block, scale, zeros, compute=compute)


def _tensor(node: ir.Node, index: int) -> ir.TensorProtocol | None:
    value = input_at(node, index)
    return value.const_value if value is not None and is_constant(value) else None


def _required(node: ir.Node, index: int) -> ir.TensorProtocol:
    found = _tensor(node, index)
    assert found is not None
    return found
