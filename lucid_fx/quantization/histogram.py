"""The arithmetic of growing histograms and of the clip search (spec section 5).

Counts are int64 and bin arithmetic is float64; growth is evaluated in float32 as the
specification says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

CLIP_FRACTIONS = (0.0, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2)
"""Shares of the mass that the search tries to clip, the same at both tails."""

Range = tuple[np.float32 | NDArray[np.float32], np.float32 | NDArray[np.float32]]


def count(x: NDArray[np.float32], low: float, high: float, bins: int) -> NDArray[np.int64]:
    """Counts of ``x`` in equal bins of [low, high]; a point range counts in [low, low + 1]."""
    width = high - low if high > low else 1.0  # from 2**53 on, low + 1 is low
    step = width / bins
    index = np.trunc((x.astype(np.float64).ravel() - low) / step).astype(np.int64)
    return np.bincount(np.minimum(index, bins - 1), minlength=bins)


def regrow(histogram: NDArray[np.int64], old: Range, new: Range) -> NDArray[np.int64]:
    """Move each old bin's count, whole, to the new bin that holds its centre."""
    bins = np.float32(histogram.size)
    old_width = np.float32((np.float32(old[1]) - np.float32(old[0])) / bins)
    new_width = np.float32((np.float32(new[1]) - np.float32(new[0])) / bins)
    which = np.arange(histogram.size, dtype=np.float32)
    centres = np.float32(old[0]) + (which + np.float32(0.5)) * old_width
    if new_width == 0:
        return histogram
    index = np.clip((centres - np.float32(new[0])) / new_width, 0, bins - 1)
    moved = np.bincount(index.astype(np.int64), weights=histogram, minlength=histogram.size)
    return moved.astype(np.int64)


def best_clip(
    histogram: NDArray[np.int64],
    low: float,
    high: float,
    levels: int,
    fractions: Sequence[float],
) -> tuple[float, float]:
    """The range whose clipping plus rounding error, summed over the histogram, is least.

    Args:
        histogram: counts of equal bins between ``low`` and ``high`` (real values).
        levels: number of code steps of the grid.
        fractions: shares of the mass to cut off at each tail; earlier ones win ties.
    """
    total = histogram.sum()
    if total == 0 or high <= low:
        return low, high
    width = (high - low) / histogram.size
    centres = low + (np.arange(histogram.size) + 0.5) * width
    mass = np.cumsum(histogram)
    best, least = (low, high), np.inf
    for fraction in fractions:
        first = int(np.searchsorted(mass, fraction * total, side="left"))
        last = int(np.searchsorted(mass, (1 - fraction) * total, side="left"))
        a, b = centres[first], centres[min(last, histogram.size - 1)]
        if b <= a:
            continue
        clipped = centres - np.clip(centres, a, b)
        error = float(histogram @ (clipped**2 + ((b - a) / levels) ** 2 / 12))
        if error < least:
            best, least = (float(a), float(b)), error
    return best
