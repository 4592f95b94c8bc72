"""The block-scaled kernels of the native library: packing, quantizing and their inverses.

Arrays are contiguous. The results are those of the numpy definition, bit for bit, whatever the
number of threads and the kernel set.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lucid_fx.native.library import NativeLibrary, Signature

INTEGER_HALF_AWAY, INTEGER_HALF_EVEN, SMALL_FLOAT = 0, 1, 2  # LFX_BLOCK_* of native/c_api.h


class Packing(Protocol):
    """Where the codes of a tensor lie in memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the tensor, at least one axis."""

    @property
    def axis(self) -> int:
        """The packed axis, from the outermost."""

    @property
    def bits(self) -> int:
        """Of the field of one code: 2, 4 or 8."""

    @property
    def unit(self) -> int:
        """Bytes that a line is padded to a multiple of."""


class NativeEncoder(NamedTuple):
    """How a quotient becomes a code.

    Attributes:
        kind: INTEGER_HALF_AWAY, INTEGER_HALF_EVEN or SMALL_FLOAT.
        low, high: what the quotient is clamped to, in code steps.
        mantissa_bits, bias: of the float format.
        bits: of a code.
    """

    kind: int
    low: float
    high: float
    mantissa_bits: int = 0
    bias: int = 0
    bits: int = 8


class Encoder(Protocol):
    """Something that the library can encode with."""

    def native(self) -> NativeEncoder | None:
        """Its parameters."""


class _Packing(ctypes.Structure):
    _fields_ = (
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_size_t),
        ("axis", ctypes.c_size_t),
        ("bits", ctypes.c_int32),
        ("unit", ctypes.c_int32),
    )


class _Encoder(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("low", ctypes.c_float),
        ("high", ctypes.c_float),
        ("mantissa_bits", ctypes.c_int32),
        ("bias", ctypes.c_int32),
        ("bits", ctypes.c_int32),
    )


def _signatures() -> dict[str, Signature]:
    pointer, dims = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)
    packing, encoder = ctypes.POINTER(_Packing), ctypes.POINTER(_Encoder)
    run = (ctypes.c_int32, ctypes.c_char_p)  # threads, kernel set
    finite = ctypes.POINTER(ctypes.c_int32)
    return {
        "lfx_block_pack": (ctypes.c_int, packing, pointer, pointer, *run),
        "lfx_block_unpack": (ctypes.c_int, packing, pointer, ctypes.c_int32, pointer, *run),
        "lfx_block_quantize": (
            *(ctypes.c_int, packing, dims, pointer, pointer, encoder, pointer, finite),
            *run,
        ),
        "lfx_block_dequantize": (
            *(ctypes.c_int, packing, dims, pointer, pointer, pointer, ctypes.c_int32, pointer),
            *run,
        ),
        "lfx_block_extremes": (
            *(ctypes.c_int, dims, dims, ctypes.c_size_t, pointer, pointer, pointer, finite),
            *run,
        ),
    }


class NativeBlocks:
    """The kernels, with a number of threads.

    Args:
        library: the loaded library.
        threads: how many threads a call may use.
        isa: a kernel set by name; the best of this machine by default.
    """

    def __init__(self, library: NativeLibrary, threads: int, isa: str | None = None) -> None:
        self._library = library
        self._functions = library.bind(_signatures())
        self._run = (threads, None if isa is None else isa.encode())

    def pack(self, codes: NDArray[np.uint8], packing: Packing, out: NDArray[np.uint8]) -> None:
        """Codes to bytes."""
        call = self._functions.lfx_block_pack
        self._library.check(call(_packing(packing), _at(codes), _at(out), *self._run))

    def unpack(
        self, data: NDArray[np.uint8], packing: Packing, sign: int, out: NDArray[np.uint8]
    ) -> None:
        """Bytes to codes; fields of ``sign`` bits are sign-extended, 0 for none."""
        call = self._functions.lfx_block_unpack
        self._library.check(call(_packing(packing), _at(data), sign, _at(out), *self._run))

    def quantize(
        self,
        x: NDArray[np.float32],
        scales: NDArray[np.float32],
        block: Sequence[int],
        packing: Packing,
        encoder: Encoder,
        out: NDArray[np.uint8],
    ) -> bool:
        """Real values to bytes; ``scales`` has the shape of the grid. False if not all finite."""
        parameters = encoder.native()
        assert parameters is not None
        finite = ctypes.c_int32()
        call = self._functions.lfx_block_quantize
        self._library.check(
            call(
                *(_packing(packing), _dims(block), _at(x), _at(scales)),
                *(_Encoder(*parameters), _at(out), finite, *self._run),
            )
        )
        return bool(finite.value)

    def dequantize(
        self,
        data: NDArray[np.uint8],
        scales: NDArray[np.float32],
        block: Sequence[int],
        packing: Packing,
        table: NDArray[np.float32],
        out: NDArray[np.float32],
    ) -> None:
        """Bytes to real values: ``table[field] * scale``."""
        call = self._functions.lfx_block_dequantize
        self._library.check(
            call(
                *(_packing(packing), _dims(block), _at(data), _at(scales)),
                *(_at(table), len(table), _at(out), *self._run),
            )
        )

    def extremes(
        self, x: NDArray[np.float32], block: Sequence[int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
        """The least and the greatest element of every block, and whether all x is finite."""
        grid = [-(-size // extent) for size, extent in zip(x.shape, block, strict=True)]
        low, high = np.empty(grid, np.float32), np.empty(grid, np.float32)
        finite = ctypes.c_int32()
        call = self._functions.lfx_block_extremes
        self._library.check(
            call(
                *(_dims(x.shape), _dims(block), x.ndim, _at(x), _at(low), _at(high)),
                *(finite, *self._run),
            )
        )
        return low, high, bool(finite.value)


def _packing(packing: Packing) -> _Packing:
    shape = packing.shape
    return _Packing(_dims(shape), len(shape), packing.axis, packing.bits, packing.unit)


def _dims(sizes: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(sizes))(*sizes)


def _at(array: NDArray[Any]) -> int:
    assert array.flags.c_contiguous
    return array.ctypes.data
