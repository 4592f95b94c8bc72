"""Parts of a weight as float32, so that what is computed on the way stays small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE = 1 << 20
"""Elements of a part: temporary arrays of 4 MiB, which is large enough for numpy's fast loops."""

Floats = NDArray[np.float32]


def row_tiles(w: NDArray[Any], block: int) -> Iterator[tuple[slice, Floats]]:
    """Rows of ``w [K, N]`` in whole blocks, all at once where ``w`` is float32 already.

    Yields:
        The rows, and float32 of their values.
    """
    k, n = w.shape
    ready = w.dtype == np.float32 and w.dtype.isnative and w.flags.aligned
    step = k if ready else max(block, TILE // n // block * block)
    for start in range(0, k, step):
        rows = slice(start, min(k, start + step))
        yield rows, np.require(w[rows], np.float32, ("A",))


def column_tiles(w: NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """Columns of ``w [K, N]``, contiguous float32 copies.

    Yields:
        The columns, and their values.
    """
    k, n = w.shape
    step = max(1, TILE // k)
    for start in range(0, n, step):
        columns = slice(start, min(n, start + step))
        yield columns, np.array(w[:, columns], np.float32, order="C")


def in_blocks(w: Floats, block: int) -> Floats:
    """``[K, N]`` as ``[blocks, block, N]``; the last block is filled up with zeros."""
    k, n = w.shape
    missing = -k % block
    padded = np.pad(w, ((0, missing), (0, 0))) if missing else w
    return padded.reshape(-1, block, n)
