"""Which block each element falls in: `BlockSize` and `BlockLayout`.

Source: the block-scaled specification, sections 4 and 6.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_BLOCK_DIMS = 5
"""Most axes along which a block extends."""


@functools.total_ordering
@dataclass(frozen=True)
class BlockSize:
    """The extents of a block in elements, along the last axes of a tensor (section 4).

    Extents of 1 in front say nothing and are dropped, so ``BlockSize([1, 32]) == BlockSize([32])``.
    Axes that the block does not name have extent 1: ``[32]`` splits an ``[8, 64]`` tensor into
    8 x 2 blocks, and the empty block gives every element its own. Sorted by length, then content.

    Args:
        values: extents from 1 to 255, the innermost last; at most five behind the leading ones.

    Raises:
        ValueError: an extent out of range, or too many.
    """

    dims: tuple[int, ...]

    def __init__(self, values: Iterable[int] = ()) -> None:
        dims = [int(value) for value in values]
        wrong = [extent for extent in dims if not 1 <= extent <= 255]
        if wrong:
            raise ValueError(f"values holds the extent {wrong[0]}: extents go from 1 to 255")
        while dims and dims[0] == 1:
            del dims[0]
        if len(dims) > MAX_BLOCK_DIMS:
            raise ValueError(
                f"values holds {len(dims)} extents: a block has at most {MAX_BLOCK_DIMS} axes"
            )
        object.__setattr__(self, "dims", tuple(dims))

    def __len__(self) -> int:
        return len(self.dims)

    def __iter__(self) -> Iterator[int]:
        return iter(self.dims)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, BlockSize):
            return NotImplemented
        return (len(self.dims), self.dims) < (len(other.dims), other.dims)

    @property
    def num_elements(self) -> int:
        """Elements of a whole block; 1 for the empty one."""
        return math.prod(self.dims)

    def to_dim_vec(self, rank: int) -> tuple[int, ...]:
        """The extent along each axis of a tensor of ``rank`` axes.

        Raises:
            ValueError: the block has more axes than the tensor.
        """
        if rank < len(self.dims):
            raise ValueError(
                f"the block {list(self.dims)} has {len(self.dims)} axes, but the tensor has rank"
                f" {rank}: reshape the tensor or give a block of at most {rank} axes"
            )
        return (1,) * (rank - len(self.dims)) + self.dims

    def num_blocks(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Blocks along each axis of ``shape``; a partial block at the end counts."""
        extents = self.to_dim_vec(len(shape))
        return tuple(-(-size // extent) for size, extent in zip(shape, extents, strict=True))


@dataclass(frozen=True)
class BlockLayout:
    """The grid of blocks over a tensor (section 6).

    Everything that pairs elements with the scales of blocks asks here. A block is a box, and a run
    of memory only where it spans the last axis.

    Args:
        shape: of the tensor.
        block_size: extents of a block.

    Attributes:
        block: the extent along each axis.
        grid: blocks along each axis, partial ones included.
    """

    shape: tuple[int, ...]
    block_size: BlockSize
    block: tuple[int, ...] = field(init=False)
    grid: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        object.__setattr__(self, "block", self.block_size.to_dim_vec(len(self.shape)))
        object.__setattr__(self, "grid", self.block_size.num_blocks(self.shape))

    def num_blocks(self) -> int:
        """How many blocks there are."""
        return math.prod(self.grid)

    def divides(self) -> bool:
        """Whether every axis is a whole number of blocks."""
        return all(size % extent == 0 for size, extent in zip(self.shape, self.block, strict=True))

    def block_of(self, index: ArrayLike) -> Any:
        """The block, as a row-major index in `grid`, of row-major elements.

        Args:
            index: one element or an array of them.

        Raises:
            ValueError: an index outside the tensor.
        """
        shape, block, grid = self.shape or (1,), self.block or (1,), self.grid or (1,)
        coordinates = np.unravel_index(np.asarray(index, np.intp), shape)
        blocks = [at // extent for at, extent in zip(coordinates, block, strict=True)]
        found = np.ravel_multi_index(blocks, grid)
        return int(found) if np.ndim(found) == 0 else found


def spread(
    per_block: NDArray[np.float32], block: Sequence[int], shape: Sequence[int]
) -> NDArray[np.float32]:
    """Give every element of a tensor the number of its block.

    Args:
        per_block: one number a block, shape of the grid.
        block: the extent of a block along each axis.
        shape: of the tensor.
    """
    for axis, (extent, size) in enumerate(zip(block, shape, strict=True)):
        if extent > 1:
            cut = (slice(None),) * axis + (slice(size),)
            per_block = np.repeat(per_block, extent, axis=axis)[cut]
    return per_block
