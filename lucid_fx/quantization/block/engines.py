"""Who computes a tile: the native library, or `Definition` in numpy.

The two give the same bits. `Definition` says in numpy what the result is, works without the
library, and takes small tensors, where a call would cost more than it saves.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lucid_fx.native.block import NativeBlocks
from lucid_fx.native.library import NativeLibrary, cores, load, say_missing
from lucid_fx.quantization.block.layout import spread
from lucid_fx.quantization.block.rounding import Encoder

if TYPE_CHECKING:
    from lucid_fx.quantization.block.packing import Packing

NATIVE_ELEMENTS = 1 << 14
"""Tensors with fewer elements are computed in numpy."""

_UNITS: dict[int, np.dtype[Any]] = {1: np.dtype(np.uint8), 4: np.dtype("<u4")}


class Engine(Protocol):
    """What both can do with one tile; arrays are contiguous, results are written to ``out``."""

    def pack(self, codes: NDArray[np.uint8], packing: Packing, out: NDArray[np.uint8]) -> None:
        """Codes to bytes."""

    def unpack(
        self, data: NDArray[np.uint8], packing: Packing, sign: int, out: NDArray[np.uint8]
    ) -> None:
        """Bytes to codes; fields of ``sign`` bits are sign-extended, 0 for none."""

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

    def extremes(
        self, x: NDArray[np.float32], block: Sequence[int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
        """The least and the greatest element of every block; False if x is not all finite."""


class Definition:
    """The results in numpy."""

    def pack(self, codes: NDArray[np.uint8], packing: Packing, out: NDArray[np.uint8]) -> None:
        """Each unit is the sum of its fields, shifted by their place."""
        lines = np.swapaxes(codes, packing.axis, -1).reshape(-1, packing.shape[packing.axis])
        unit, per_unit = _UNITS[packing.unit], packing.per_unit
        mask = np.uint8(2**packing.bits - 1)
        units = np.zeros((len(lines), packing.line_bytes // packing.unit), unit)
        for place in range(per_unit):
            fields = (lines[:, place::per_unit] & mask).astype(unit)
            units[:, : fields.shape[1]] |= fields << unit.type(place * packing.bits)
        out[...] = units.reshape(-1).view(np.uint8)

    def unpack(
        self, data: NDArray[np.uint8], packing: Packing, sign: int, out: NDArray[np.uint8]
    ) -> None:
        """Each field is cut out of its unit, and its highest bit copied to the bits above."""
        fields = _fields(data, packing)
        if sign:
            fields = ((fields << (8 - sign)).view(np.int8) >> np.int8(8 - sign)).view(np.uint8)
        out[...] = fields

    def quantize(
        self,
        x: NDArray[np.float32],
        scales: NDArray[np.float32],
        block: Sequence[int],
        packing: Packing,
        encoder: Encoder,
        out: NDArray[np.uint8],
    ) -> bool:
        """Quotient, then the nearest code, then packed. A scale of zero gives quotients of zero."""
        steps = spread(scales, block, x.shape)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            quotient = np.where(steps == 0, np.float32(0), x / steps)
            self.pack(encoder.encode(quotient), packing, out)
        return bool(np.isfinite(x).all())

    def dequantize(
        self,
        data: NDArray[np.uint8],
        scales: NDArray[np.float32],
        block: Sequence[int],
        packing: Packing,
        table: NDArray[np.float32],
        out: NDArray[np.float32],
    ) -> None:
        """Look the field up, multiply in float32."""
        fields = _fields(data, packing) & np.uint8(len(table) - 1)
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(table[fields], spread(scales, block, out.shape), out=out)

    def extremes(
        self, x: NDArray[np.float32], block: Sequence[int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], bool]:
        """Reduce each axis by its extent; a zero is positive."""
        low = high = x
        for axis, (extent, size) in enumerate(zip(block, x.shape, strict=True)):
            if extent > 1:
                starts = np.arange(0, size, extent)
                low = np.minimum.reduceat(low, starts, axis=axis)
                high = np.maximum.reduceat(high, starts, axis=axis)
        finite = bool(np.isfinite(low).all() and np.isfinite(high).all())
        return low + np.float32(0), high + np.float32(0), finite


@functools.cache
def _native(library: NativeLibrary, threads: int) -> NativeBlocks:
    return NativeBlocks(library, threads)


def choose(elements: int, threads: int | None = None) -> Engine:
    """Whoever is faster for so many elements; warns once when that would be the missing library.

    Args:
        elements: of the whole tensor.
        threads: None for all cores of this process.

    Raises:
        ValueError: ``threads`` is not positive.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads is {threads}: give a positive number, or None for all cores")
    if elements < NATIVE_ELEMENTS:
        return Definition()
    library = load()
    if library is None:
        say_missing()
        return Definition()
    return _native(library, threads or cores())


def _fields(data: NDArray[np.uint8], packing: Packing) -> NDArray[np.uint8]:
    """Unsigned fields, shape of the tensor."""
    units = data.view(_UNITS[packing.unit]).reshape(-1, packing.line_bytes // packing.unit, 1)
    places = np.arange(packing.per_unit, dtype=units.dtype) * units.dtype.type(packing.bits)
    fields = ((units >> places) & units.dtype.type(2**packing.bits - 1)).astype(np.uint8)
    shape = list(packing.shape)
    shape[packing.axis], shape[-1] = shape[-1], shape[packing.axis]
    lines = fields.reshape(len(units), -1)[:, : shape[-1]]
    return np.ascontiguousarray(np.swapaxes(lines.reshape(shape), packing.axis, -1))
