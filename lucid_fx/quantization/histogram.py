"""The arithmetic of growing histograms (affine specification, section 5).

Counts are int64, bin arithmetic is float64, and growth is evaluated in float32 as the
specification says.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Range = tuple[np.float32 | NDArray[np.float32], np.float32 | NDArray[np.float32]]
"""Smallest and largest real value."""


def count(x: NDArray[np.float32], low: float, high: float, bins: int) -> NDArray[np.int64]:
    """Counts of ``x`` in equal bins of [low, high]; a point range counts in [low, low + 1]."""
    width = high - low if high > low else 1.0  # from 2**53 on, low + 1 is low
    step = width / bins
    index = np.trunc((x.astype(np.float64).ravel() - low) / step).astype(np.int64)
    return np.bincount(np.minimum(index, bins - 1), minlength=bins)


def regrow(histogram: NDArray[np.int64], old: Range, new: Range) -> NDArray[np.int64]:
    """Move each old bin's count, whole, to the new bin that holds its centre.

    The sum of counts stays. A range that stays moves nothing.
    """
    if old == new:
        return histogram
    with np.errstate(over="ignore"):
        width = np.float32(new[1]) - np.float32(new[0])
    # two finite ends can be further apart than float32 reaches
    real: Any = np.float32 if np.isfinite(width) else np.float64
    low, high, new_low, new_high = (real(end) for end in (*old, *new))
    bins = real(histogram.size)
    old_width, new_width = (high - low) / bins, (new_high - new_low) / bins
    if new_width == 0:
        return histogram
    centres = low + (np.arange(histogram.size, dtype=real) + real(0.5)) * old_width
    index = np.clip((centres - new_low) / new_width, 0, bins - 1).astype(np.int64)
    moved = np.zeros_like(histogram)
    np.add.at(moved, index, histogram)
    return moved
