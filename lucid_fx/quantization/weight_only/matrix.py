"""`QuantizedMatrix`: the codes and scales of one weight, and the operands that hold them.

The same numbers go into two ops: ``lucid_fx.MatMulInt4``, whose layout is that of
`lucid_fx.native.matmul`, and onnxruntime's own ``com.microsoft.MatMulNBits``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from lucid_fx.native.library import load
from lucid_fx.native.matmul import PANEL, NativeMatMul
from lucid_fx.quantization.block import ScaleDtype
from lucid_fx.quantization.weight_only.config import WeightConfig

WeightsOp = Literal["matmulint4", "matmulnbits"]

_STORED = {
    ScaleDtype.F32: np.dtype(np.float32),
    ScaleDtype.F16: np.dtype(np.float16),
    ScaleDtype.BF16: np.dtype(ml_dtypes.bfloat16),
    ScaleDtype.UE4M3: np.dtype(ml_dtypes.float8_e4m3fn),
}


class OperandType(NamedTuple):
    """What an operand is before it is computed."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class QuantizedMatrix:
    """A weight ``[K, N]`` on codes.

    Attributes:
        config: what the codes are.
        codes: uint8 ``[K, N]``, stored form: a signed code plus ``2**(bits - 1)``.
        scales: float32 ``[blocks, N]``, each a value of the scale format; of either sign.
        zeros: uint8 ``[blocks, N]``, the stored code of zero; None for ``2**(bits - 1)``.
        global_scale: float32 factor of all scales.
    """

    config: WeightConfig
    codes: NDArray[np.uint8]
    scales: NDArray[np.float32]
    zeros: NDArray[np.uint8] | None = None
    global_scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """``(K, N)``."""
        k, n = self.codes.shape
        return k, n

    @property
    def steps(self) -> NDArray[np.float32]:
        """The real value of a code step, float32 ``[blocks, N]``, as the op computes it."""
        return np.float32(self.global_scale) * self.scales

    def dequantize(self) -> NDArray[np.float32]:
        """The real weights ``[K, N]``: ``(code - zero) * step``, with one rounding."""
        real = np.empty(self.shape, np.float32)
        block, steps = self.config.block_size, self.steps
        for index, step in enumerate(steps):
            rows = slice(index * block, (index + 1) * block)
            zero = np.int16(self.config.middle) if self.zeros is None else self.zeros[index]
            real[rows] = (self.codes[rows].astype(np.int16) - zero).astype(np.float32) * step
        return real

    def operands(self) -> dict[str, NDArray[Any]]:
        """What MatMulInt4 takes: ``codes``, ``scales`` and, where there are any, ``zero_points``.

        Raises:
            ValueError: the native library, which packs, is not installed.
        """
        config, stored = self.config, _STORED[self.config.scale]
        codes = _native().pack(self.codes, config.block_size, config.bits)
        scales = panels(self.scales.astype(stored))
        if config.scale is ScaleDtype.UE4M3:
            scales = scales.view(np.uint8)
        zeros = {} if self.zeros is None else {"zero_points": panels(self.zeros)}
        return {"codes": codes, "scales": scales, **zeros}

    def nbits_operands(self, scales: Any = np.float32) -> dict[str, NDArray[Any]]:
        """What MatMulNBits takes, by the names of `operands`.

        Args:
            scales: the type of scales, which is that of the activations. The float32 product of
                global scale and scale is what MatMulInt4 computes too, so the weights are the same.

        Raises:
            ValueError: the scales are no numbers of that type.
        """
        steps = self.steps.T.astype(scales)
        if not np.array_equal(steps.astype(np.float32), self.steps.T):
            raise ValueError(f"the scales of {self.config} are no {np.dtype(scales)} numbers")
        bits, block = self.config.bits, self.config.block_size
        k, n = self.shape
        padded = np.zeros((n, -(-k // block) * block), np.uint8)
        padded[:, :k] = self.codes.T
        codes = _pack_fields(padded, bits).reshape(n, -1, block * bits // 8)
        zeros = {} if self.zeros is None else {"zero_points": _pack_fields(self.zeros.T, bits)}
        return {"codes": codes, "scales": np.ascontiguousarray(steps), **zeros}

    @classmethod
    def from_operands(
        cls, config: WeightConfig, k: int, n: int, operands: Mapping[str, NDArray[Any]],
        global_scale: float = 1.0,
    ) -> QuantizedMatrix:  # fmt: skip
        """Read what `operands` gave for a matrix ``[k, n]``."""
        codes = _native().unpack(operands["codes"], k, n, config.block_size, config.bits)
        scales = unpanels(operands["scales"], n)
        if config.scale is ScaleDtype.UE4M3:
            scales = scales.view(_STORED[config.scale])
        zeros = operands.get("zero_points")
        zeros = None if zeros is None else unpanels(zeros, n)
        return cls(config, codes, scales.astype(np.float32), zeros, global_scale)

    @classmethod
    def from_nbits(
        cls, config: WeightConfig, k: int, n: int, operands: Mapping[str, NDArray[Any]]
    ) -> QuantizedMatrix:
        """Read what MatMulNBits holds of a matrix ``[k, n]``; scales may be flat."""
        blocks = -(-k // config.block_size)
        fields = _unpack_fields(operands["codes"].reshape(n, -1), config.bits)
        codes = np.ascontiguousarray(fields[:, :k].T)
        scales = operands["scales"].reshape(n, blocks).T.astype(np.float32, order="C")
        zeros = operands.get("zero_points")
        if zeros is not None:
            zeros = _unpack_fields(zeros.reshape(n, -1), config.bits)[:, :blocks]
            zeros = np.ascontiguousarray(zeros.T)
        return cls(config, codes, scales, zeros)


def operand_shapes(
    config: WeightConfig, k: int, n: int, op: WeightsOp = "matmulint4", scales: Any = np.float32
) -> dict[str, OperandType]:
    """Types and shapes of the operands of a matrix ``[k, n]``, in the order of the op's inputs.

    Args:
        scales: the type of MatMulNBits' scales.
    """
    blocks, bits, byte = -(-k // config.block_size), config.bits, np.dtype(np.uint8)
    if op == "matmulint4":
        lines = -(-n // PANEL)
        per_block = (lines, blocks, PANEL)
        panel_bytes = blocks * config.block_size * PANEL * bits // 8
        stored = byte if config.scale is ScaleDtype.UE4M3 else _STORED[config.scale]
        found = {
            "codes": OperandType(byte, (lines, panel_bytes)),
            "scales": OperandType(stored, per_block),
            "zero_points": OperandType(byte, per_block),
        }
    else:
        found = {
            "codes": OperandType(byte, (n, blocks, config.block_size * bits // 8)),
            "scales": OperandType(np.dtype(scales), (n, blocks)),
            "zero_points": OperandType(byte, (n, -(-blocks * bits // 8))),
        }
    if not config.zero_points:
        del found["zero_points"]
    return found


def panels(array: NDArray[Any]) -> NDArray[Any]:
    """``[blocks, N]`` as ``[panels, blocks, 16]``; columns past N hold zeros."""
    blocks, n = array.shape
    wide = np.zeros((blocks, -(-n // PANEL) * PANEL), array.dtype)
    wide[:, :n] = array
    return np.ascontiguousarray(wide.reshape(blocks, -1, PANEL).swapaxes(0, 1))


def unpanels(array: NDArray[Any], n: int) -> NDArray[Any]:
    """The ``[blocks, n]`` that `panels` was given."""
    wide = array.swapaxes(0, 1).reshape(array.shape[1], -1)
    return np.ascontiguousarray(wide[:, :n])


def _pack_fields(fields: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Fields of some bits along the last axis as bytes, the first in the lowest bits."""
    per_byte = 8 // bits
    missing = -fields.shape[-1] % per_byte
    padded = np.pad(fields, ((0, 0), (0, missing))) if missing else fields
    packed = np.zeros((*padded.shape[:-1], padded.shape[-1] // per_byte), np.uint8)
    for index in range(per_byte):
        packed |= padded[..., index::per_byte] << np.uint8(index * bits)
    return packed


def _unpack_fields(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    per_byte = 8 // bits
    fields = np.empty((*packed.shape[:-1], packed.shape[-1] * per_byte), np.uint8)
    for index in range(per_byte):
        fields[..., index::per_byte] = packed >> np.uint8(index * bits) & np.uint8(2**bits - 1)
    return fields


def _native() -> NativeMatMul:
    library = load()
    if library is None:
        raise ValueError(
            "weights of MatMulInt4 are packed by the native library, which is not installed: use"
            " MatMulNBits"
        )
    return NativeMatMul(library)
