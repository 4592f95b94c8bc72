"""Codes in memory: the geometry of packed lines, packing and unpacking.

Source: the block-scaled specification, sections 3 and 10. A *line* is what runs along the packed
axis. Lines are stored one after the other, each padded with zero bits to whole *units* (bytes or
32-bit words); the packed axis is swapped with the last one, and the others keep their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.block import engines
from lucid_fx.quantization.block.rounding import FloatEncoder
from lucid_fx.quantization.block.tiles import tiles
from lucid_fx.quantization.block.values import QuantStore, QuantValue, StoreKind


@dataclass(frozen=True)
class Packing:
    """Where the codes of a tensor lie in memory.

    Attributes:
        shape: of the tensor; a scalar has the shape ``(1,)`` here.
        axis: the packed axis, counted from the outermost.
        bits: of the field that holds one code: 8 where a unit holds one.
        unit: bytes of one unit, 1 or 4.
    """

    shape: tuple[int, ...]
    axis: int
    bits: int
    unit: int

    @classmethod
    def of(cls, value: QuantValue, store: QuantStore, shape: Sequence[int]) -> Packing:
        """The geometry of a tensor.

        Raises:
            ValueError: the tensor lacks the packed axis.
        """
        shape = tuple(int(size) for size in shape) or (1,)
        dim = store.dim or 0
        if dim >= len(shape):
            raise ValueError(
                f"the packed axis {dim} (counted from the innermost) is out of range for a tensor"
                f" of rank {len(shape)}: give a store with an axis below that"
            )
        unit = 4 if store.kind is StoreKind.PackedU32 else 1
        alone = store.num_quants(value) == 1
        return cls(shape, len(shape) - 1 - dim, 8 if alone else value.size_bits, unit)

    @property
    def per_unit(self) -> int:
        """Codes in one unit."""
        return 8 * self.unit // self.bits

    @property
    def line_bytes(self) -> int:
        """Bytes of one line with its padding."""
        return -(-self.shape[self.axis] // self.per_unit) * self.unit

    @property
    def nbytes(self) -> int:
        """Bytes of all lines."""
        others = math.prod(self.shape[: self.axis] + self.shape[self.axis + 1 :])
        return others * self.line_bytes

    @property
    def size(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)


def pack(
    codes: ArrayLike,
    value: QuantValue,
    store: QuantStore,
    *,
    out: NDArray[np.uint8] | None = None,
    threads: int | None = None,
) -> NDArray[np.uint8]:
    """Put codes into memory (section 3).

    Args:
        codes: integer codes, or the bytes of float codes, shape of the tensor.
        value: the format of a code.
        store: where codes go.
        out: where to write the bytes; allocated by default.
        threads: of the native library; all cores by default. The result does not depend on it.

    Returns:
        Bytes, ``uint8[Packing.of(value, store, shape).nbytes]``.

    Raises:
        ValueError: a code needs more bits than its format has, the packed axis does not exist, or
            ``out`` has another length.
    """
    return pack_bytes(as_codes(codes, value), value, store, out=out, threads=threads)


def pack_bytes(
    array: NDArray[np.uint8],
    value: QuantValue,
    store: QuantStore,
    *,
    out: NDArray[np.uint8] | None = None,
    threads: int | None = None,
) -> NDArray[np.uint8]:
    """`pack` for the bytes of codes that `as_codes` gave."""
    packing = Packing.of(value, store, array.shape)
    array = array.reshape(packing.shape)
    data = np.empty(packing.nbytes, np.uint8) if out is None else out
    check_length(data, packing)
    engine = engines.choose(packing.size, threads)
    for tile in tiles(packing):
        part = np.ascontiguousarray(array[tile.index])
        engine.pack(part, tile.packing, data[tile.data])
    return data


def unpack(
    data: NDArray[np.uint8],
    shape: Sequence[int],
    value: QuantValue,
    store: QuantStore,
    *,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
) -> NDArray[Any]:
    """Read codes from memory; the padding of lines is left out.

    Args:
        data: what `pack` gave.
        shape: of the tensor.
        value: the format of a code.
        store: where codes are.
        out: where to write the codes, contiguous and of the result's type; allocated by default.
        threads: of the native library; all cores by default. The result does not depend on it.

    Returns:
        int8 codes, sign-extended, for integer formats, uint8 for floats, of shape ``shape``.

    Raises:
        ValueError: ``data`` has not the length that the shape needs, or ``out`` does not fit.
    """
    packing = Packing.of(value, store, shape)
    check_length(data, packing)
    dtype = np.dtype(np.uint8 if value.is_float else np.int8)
    codes = np.empty(tuple(shape), dtype) if out is None else out
    if codes.shape != tuple(shape) or codes.dtype != dtype or not codes.flags.carray:
        raise ValueError(
            f"out is {codes.dtype}{list(codes.shape)}, but the result is {dtype}{list(shape)},"
            " contiguous"
        )
    fields = codes.reshape(packing.shape).view(np.uint8)
    engine = engines.choose(packing.size, threads)
    for tile in tiles(packing):
        out = fields[tile.index]
        whole = out if out.flags.c_contiguous else np.empty(out.shape, np.uint8)
        engine.unpack(
            data[tile.data], tile.packing, 0 if value.is_float else value.size_bits, whole
        )
        if whole is not out:
            out[...] = whole
    return codes


def pack_words(codes: ArrayLike, value: QuantValue) -> NDArray[np.uint32]:
    """Pack one line of codes into 32-bit words, the first code in the lowest bits.

    Args:
        codes: a list of codes; the last word is padded with zero fields.
        value: the format of a code.
    """
    line = as_codes(codes, value).ravel()
    return pack_bytes(line, value, QuantStore.PackedU32(0)).view("<u4").astype(np.uint32)


def unpack_words(words: ArrayLike, numel: int, value: QuantValue) -> NDArray[Any]:
    """Read the first ``numel`` codes of a line of words; fields behind them are ignored.

    Raises:
        ValueError: the words hold fewer codes.
    """
    line = np.asarray(words, np.uint32).ravel()
    needed = Packing.of(value, QuantStore.PackedU32(0), (numel,)).nbytes // 4
    if line.size < needed:
        raise ValueError(f"words holds {line.size} words, but {numel} codes need {needed}")
    data = line[:needed].astype("<u4").view(np.uint8)
    return unpack(data, (numel,), value, QuantStore.PackedU32(0))


def pack_i8s_to_u32s(values: ArrayLike) -> NDArray[np.uint32]:
    """Pack int8 values four to a word, the first in the lowest byte, whatever the scheme."""
    return pack_words(values, QuantValue.Q8F)


def pack_e2m1x2(values: ArrayLike) -> bytes:
    """Round real values to E2M1 and put two into a byte, the first into the low nibble.

    Args:
        values: real values in code steps; they saturate at 6. An odd last one is padded with zero.
    """
    value = QuantValue.E2M1
    line = FloatEncoder(value).encode(np.asarray(values, np.float32).ravel())
    return pack_bytes(line, value, QuantStore.PackedNative(0)).tobytes()


def as_codes(
    codes: ArrayLike, value: QuantValue, *, unsigned: bool | None = None
) -> NDArray[np.uint8]:
    """The bytes of codes, checked to fit the bits of their format.

    Args:
        codes: integers.
        value: the format of a code.
        unsigned: whether codes up to ``2**bits - 1`` are meant, as the fields of floats (the
            default for these) and the indices of a table are.

    Raises:
        ValueError: codes that are no integers or need more bits.
    """
    unsigned = value.is_float if unsigned is None else unsigned
    array = np.asarray(codes)
    if array.size == 0:
        return array.astype(np.uint8)
    if array.dtype.kind not in "iu":
        raise ValueError(
            f"codes are of type {array.dtype}, an invalid type for quantized codes: give integers"
            " (int8)"
        )
    bits = value.size_bits
    least, most = -(2 ** (bits - 1)), 2 ** (bits - int(not unsigned)) - 1
    info = np.iinfo(array.dtype)
    if least <= info.min and info.max <= most:
        return array.view(np.uint8)
    low, high = int(array.min()), int(array.max())
    if low < least or high > most:
        raise ValueError(
            f"codes go from {low} to {high}, but {value.name} has {bits} bits: codes from {least}"
            f" to {most}"
        )
    return array.astype(np.int8 if low < 0 else np.uint8, copy=False).view(np.uint8)


def check_length(data: NDArray[np.uint8], packing: Packing) -> None:
    """Refuse bytes that are not as many as the geometry needs."""
    if data.dtype != np.uint8 or data.ndim != 1:
        raise ValueError(f"data is {data.dtype}{list(data.shape)}: give one axis of uint8")
    if data.size != packing.nbytes:
        raise ValueError(
            f"data holds {data.size} bytes of codes, but the shape {list(packing.shape)} takes"
            f" {packing.nbytes}{padding_note(packing)}"
        )


def padding_note(packing: Packing) -> str:
    """What a wrong length may come from."""
    if packing.per_unit == 1:
        return ""
    unit = "words" if packing.unit == 4 else "bytes"
    return f": every packed line is padded to whole {unit}"
