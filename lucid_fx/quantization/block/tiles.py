"""Cutting a tensor into tiles that can be read, quantized and stored one at a time.

A tile is a range of one axis: the first, in the order of the stored lines, that is longer than 1.
So the bytes of a tile are a run, and a tile holds whole blocks and whole units.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lucid_fx.quantization.block.packing import Packing

TILE_ELEMENTS = 1 << 22
"""About how many elements a tile has: 16 MiB of float32."""


@dataclass(frozen=True)
class Tile:
    """One tile.

    Attributes:
        index: where it is in the tensor.
        grid: where its blocks are in the grid of blocks.
        data: where its codes are among the stored bytes.
        packing: the geometry of the tile by itself.
        block: the extent of a block along each axis; the tile's shape when there are no blocks.
    """

    index: tuple[slice, ...]
    grid: tuple[slice, ...]
    data: slice
    packing: Packing
    block: tuple[int, ...]


def tiles(packing: Packing, block: Sequence[int] | None = None) -> Iterator[Tile]:
    """Cut a tensor.

    Args:
        packing: how its codes are stored.
        block: the extent of a block along each axis, None without blocks.
    """
    shape, rank = packing.shape, len(packing.shape)
    if packing.size == 0:
        return
    axis = _cut_axis(packing)
    extent = 1 if block is None else block[axis]
    whole = math.lcm(extent, packing.per_unit) if axis == packing.axis else extent
    across = packing.size // shape[axis]
    step = max(TILE_ELEMENTS // (across * whole), 1) * whole
    before, after = (slice(None),) * axis, (slice(None),) * (rank - 1 - axis)
    begin = 0
    for start in range(0, shape[axis], step):
        stop = min(start + step, shape[axis])
        part = replace(packing, shape=(*shape[:axis], stop - start, *shape[axis + 1 :]))
        end = begin + part.nbytes
        blocks = slice(None) if block is None else slice(start // extent, -(-stop // extent))
        yield Tile(
            (*before, slice(start, stop), *after),
            (*before, blocks, *after),
            slice(begin, end),
            part,
            part.shape if block is None else tuple(block),
        )
        begin = end


def release(x: NDArray[Any]) -> None:
    """Give the pages of a read-only memory-mapped tensor back, once a tile of it has been read.

    Without it a process that has read a file through once holds all of it. What is read again comes
    from the file. Nothing happens when ``x``, or what it is a view of, is not memory-mapped.
    """
    root = x
    while isinstance(root.base, np.ndarray):
        root = root.base
    mapping = root.base
    if isinstance(root, np.memmap) and root.mode == "r" and isinstance(mapping, mmap.mmap):
        advise = getattr(mapping, "madvise", None)
        if advise is not None:
            advise(mmap.MADV_DONTNEED)


def _cut_axis(packing: Packing) -> int:
    order = list(range(len(packing.shape)))
    order[packing.axis], order[-1] = order[-1], order[packing.axis]
    return next((axis for axis in order if packing.shape[axis] > 1), order[0])
