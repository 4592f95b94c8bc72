"""Parts of a weight as float32, so that what is computed on the way stays small."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

TILE = 1 << 18
"""Elements of a part. Temporary arrays of 1 MiB stay near the caches, and a loop over them is long
beside a call of numpy."""

THREADS = min(os.cpu_count() or 1, 8)
"""Parts that are worked on at once; each takes some dozen temporary arrays."""

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


def for_columns(
    w: NDArray[Any], work: Callable[[slice, Floats], None], rows: int | None = None
) -> None:
    """Work on columns of ``w [K, N]``, some parts at once.

    Args:
        work: called with the columns, and a contiguous float32 copy of their values.
        rows: how many of them ``work`` looks at together; all by default.
    """
    k, n = w.shape
    step = max(1, TILE // (rows or k))
    parts = [slice(start, min(n, start + step)) for start in range(0, n, step)]

    def one(columns: slice) -> None:
        work(columns, np.array(w[:, columns], np.float32, order="C"))

    for _ in _pool().map(one, parts):  # lets errors through
        pass


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """The same threads for all weights: memory that one has freed stays with it."""
    return ThreadPoolExecutor(THREADS, "lucid_fx.columns")


def in_blocks(w: Floats, block: int) -> Floats:
    """``[K, N]`` as ``[blocks, block, N]``; the last block is filled up with zeros."""
    k, n = w.shape
    missing = -k % block
    padded = np.pad(w, ((0, missing), (0, 0))) if missing else w
    return padded.reshape(-1, block, n)
