"""Matrix products with packed weights, as the native library computes them.

The layout of the packed arrays is the one of the op ``lucid_fx.MatMulInt4`` (docs/int4.md).
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lucid_fx.native.library import NativeLibrary, Signature

Compute = Literal["int8", "float32"]

PANEL = 16
"""Columns of W that lie together in packed weights."""

_SCALE_TYPES = {"float32": b"f32", "float16": b"f16", "bfloat16": b"bf16", "uint8": b"ue4m3"}


class _Layout(ctypes.Structure):
    _fields_ = (
        ("k", ctypes.c_int64),
        ("n", ctypes.c_int64),
        ("block", ctypes.c_int64),
        ("bits", ctypes.c_int64),
    )


class KernelSet(NamedTuple):
    """Kernels for one instruction set, and whether this machine has it."""

    isa: str
    runs: bool


def _signatures() -> dict[str, Signature]:
    pointer, text, layout = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(_Layout)
    counts = (ctypes.POINTER(ctypes.c_int64),) * 3
    moving = (ctypes.c_int, layout, pointer, pointer, ctypes.c_int32)
    real = (ctypes.c_int, layout, pointer, ctypes.c_int64, ctypes.c_int64)
    weights = (layout, pointer, pointer, text, ctypes.c_float, pointer, pointer)
    return {
        "lfx_matmul_sizes": (ctypes.c_int, layout, *counts),
        "lfx_matmul_pack": moving,
        "lfx_matmul_unpack": moving,
        "lfx_matmul_extremes": (*real, pointer, pointer, ctypes.POINTER(ctypes.c_int32),
                                ctypes.c_int32),
        "lfx_matmul_encode": (*real, pointer, pointer, ctypes.c_int32, pointer, ctypes.c_int32),
        "lfx_matmul": (ctypes.c_int, *weights, text, pointer, ctypes.c_int64, pointer,
                       ctypes.c_int32, text),
        "lfx_read_bytes": (ctypes.c_uint64, pointer, ctypes.c_size_t, ctypes.c_int32),
        "lfx_matmul_isa": (text, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int32)),
    }  # fmt: skip


class NativeMatMul:
    """Packing and multiplying in the loaded library.

    Args:
        library: the loaded library.
        threads: how many to use; None for as many as the machine has.
    """

    def __init__(self, library: NativeLibrary, threads: int | None = None) -> None:
        self._library = library
        self._functions = library.bind(_signatures())
        self.threads = threads or os.cpu_count() or 1

    def kernel_sets(self) -> list[KernelSet]:
        """All kernel sets of this library, best first."""
        found: list[KernelSet] = []
        runs = ctypes.c_int32()
        while name := self._functions.lfx_matmul_isa(len(found), ctypes.byref(runs)):
            found.append(KernelSet(name.decode(), bool(runs.value)))
        return found

    def pack(self, codes: NDArray[np.uint8], block: int, bits: int) -> NDArray[np.uint8]:
        """Codes ``[K, N]``, each below ``2**bits``, as ``[panels, bytes of a panel]``."""
        layout = _Layout(*codes.shape, block, bits)
        packed = np.empty(self._packed_shape(layout), np.uint8)
        self._move(self._functions.lfx_matmul_pack, layout, np.ascontiguousarray(codes), packed)
        return packed

    def unpack(
        self, packed: NDArray[np.uint8], k: int, n: int, block: int, bits: int
    ) -> NDArray[np.uint8]:
        """The codes ``[K, N]`` of packed weights."""
        layout = _Layout(k, n, block, bits)
        shape = self._packed_shape(layout)
        if packed.shape != shape:
            raise ValueError(f"packed has shape {packed.shape}, expected {shape}")
        codes = np.empty((k, n), np.uint8)
        self._move(self._functions.lfx_matmul_unpack, layout, np.ascontiguousarray(packed), codes)
        return codes

    def extremes(
        self, w: NDArray[np.float32], block: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The least and the greatest of each ``block`` rows of ``w [K, N]``: ``[blocks, N]``.

        Raises:
            ValueError: a weight is NaN or infinite.
        """
        layout = _Layout(*w.shape, block, 8)
        least, greatest = np.empty((2, -(-w.shape[0] // block), w.shape[1]), np.float32)
        finite = ctypes.c_int32()
        self._library.check(
            self._functions.lfx_matmul_extremes(
                ctypes.byref(layout), *_strided(w), least.ctypes.data, greatest.ctypes.data,
                ctypes.byref(finite), self.threads,
            )
        )  # fmt: skip
        if not finite.value:
            raise ValueError("a weight is NaN or infinite")
        return least, greatest

    def encode(
        self,
        w: NDArray[np.float32],
        scales: NDArray[np.float32],
        zeros: NDArray[np.uint8] | None,
        *,
        low: int,
        block: int,
        bits: int,
    ) -> NDArray[np.uint8]:
        """Codes ``clip(rint(w / scale) + zero, low, 2**bits - 1)`` of ``w [K, N]``, as uint8.

        Args:
            scales, zeros: ``[blocks, N]``; no zeros stand for ``2**(bits - 1)``.
        """
        layout = _Layout(*w.shape, block, bits)
        codes = np.empty(w.shape, np.uint8)
        scales = np.ascontiguousarray(scales)
        zeros = None if zeros is None else np.ascontiguousarray(zeros)
        self._library.check(
            self._functions.lfx_matmul_encode(
                ctypes.byref(layout), *_strided(w), scales.ctypes.data, _address(zeros), low,
                codes.ctypes.data, self.threads,
            )
        )  # fmt: skip
        return codes

    def multiply(
        self,
        a: NDArray[np.float32],
        packed: NDArray[np.uint8],
        scales: NDArray[Any],
        *,
        n: int,
        block: int,
        bits: int,
        zeros: NDArray[np.uint8] | None = None,
        bias: NDArray[np.float32] | None = None,
        global_scale: float = 1.0,
        compute: Compute = "int8",
        isa: str | None = None,
        threads: int | None = None,
    ) -> NDArray[np.float32]:
        """``a @ W + bias`` for ``a [M, K]``; the operands are those of the op.

        Args:
            scales: ``[panels, blocks, 16]``, float32, float16, bfloat16 or uint8 (UE4M3).
            isa: forces a kernel set; None takes the best that this machine runs.
        """
        m, k = a.shape
        layout = _Layout(k, n, block, bits)
        a, packed, scales = (np.ascontiguousarray(x) for x in (a, packed, scales))
        zeros = None if zeros is None else np.ascontiguousarray(zeros)
        bias = None if bias is None else np.ascontiguousarray(bias)
        y = np.empty((m, n), np.float32)
        self._library.check(
            self._functions.lfx_matmul(
                ctypes.byref(layout), packed.ctypes.data, scales.ctypes.data,
                _SCALE_TYPES[scales.dtype.name], global_scale, _address(zeros), _address(bias),
                compute.encode(), a.ctypes.data, m, y.ctypes.data, threads or self.threads,
                None if isa is None else isa.encode(),
            )
        )  # fmt: skip
        return y

    def read(self, array: NDArray[Any], threads: int | None = None) -> int:
        """Read all of a contiguous array, and do nothing else with it: the speed of memory."""
        threads = threads or self.threads
        return int(self._functions.lfx_read_bytes(array.ctypes.data, array.nbytes, threads))

    def _packed_shape(self, layout: _Layout) -> tuple[int, int]:
        panels, blocks, panel_bytes = (ctypes.c_int64() for _ in range(3))
        found = (ctypes.byref(panels), ctypes.byref(blocks), ctypes.byref(panel_bytes))
        self._library.check(self._functions.lfx_matmul_sizes(ctypes.byref(layout), *found))
        return panels.value, panel_bytes.value

    def _move(self, function: Any, layout: _Layout, *ends: NDArray[np.uint8]) -> None:
        addresses = (array.ctypes.data for array in ends)
        self._library.check(function(ctypes.byref(layout), *addresses, self.threads))


def _strided(w: NDArray[np.float32]) -> tuple[int, int, int]:
    """Address and strides, in elements, of a float32 matrix."""
    rows, columns = (stride // w.itemsize for stride in w.strides)
    return w.ctypes.data, rows, columns


def _address(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data
