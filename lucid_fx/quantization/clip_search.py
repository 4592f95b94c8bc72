"""Which part of a histogram's range a grid should cover (affine specification, section 5).

A wide grid has a coarse step, a narrow one saturates what lies outside. Both searches weigh the
squared errors of the two (real value squared) over a histogram of equal bins, whose counts are
taken to lie at the bin centres.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lucid_fx.quantization.dtypes import QDtype, QScheme
from lucid_fx.quantization.qparams import calculate_qparams

CLIP_FRACTIONS = (0.0, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2)
"""Shares of the mass that `paired_clip` tries to cut off, the same at both tails."""

COARSE = 2.0 ** (-np.arange(65) / 8)
"""Factors of each end that `independent_clip` tries first: 1 down to 1/256."""

FINE = 2.0 ** np.linspace(1 / 8, -1 / 8, 33)
"""Factors of the best end that it tries then, up to the neighbours in `COARSE`."""


def paired_clip(
    histogram: NDArray[np.int64],
    low: float,
    high: float,
    levels: int,
    fractions: Sequence[float] = CLIP_FRACTIONS,
) -> tuple[float, float]:
    """The range of least error among those that cut off the same share of both tails.

    Args:
        histogram: counts of equal bins between ``low`` and ``high`` (real values).
        low, high: the ends of the histogram.
        levels: number of code steps of the grid.
        fractions: shares of the mass to cut off at each tail; earlier ones win ties.

    Returns:
        Two bin centres; ``(low, high)`` where there is no mass, or no width.
    """
    total = histogram.sum()
    if total == 0 or high <= low:
        return low, high
    centres = bin_centres(histogram, low, high)
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


def independent_clip(
    histogram: NDArray[np.int64],
    low: float,
    high: float,
    qscheme: QScheme,
    qdtype: QDtype,
    eps: float,
) -> tuple[float, float]:
    """The range whose real grid has the least error, each end moved by itself.

    The grid is the one that `calculate_qparams` makes of a range: widened to hold zero, and with
    a rounded zero point. Each end is tried at shares of itself, first coarsely, then finely around
    the best; less clipping wins ties.

    Args:
        histogram: counts of equal bins between ``low`` and ``high`` (real values).
        low, high: the ends of the histogram.
        qscheme, qdtype, eps: what the grid is made with.
    """
    if not histogram.any() or high <= low:
        return low, high
    errors = GridErrors(histogram, low, high, qscheme, qdtype, eps)
    moves, shares = (low < 0, high > 0), (1.0, 1.0)  # zero stays in the range anyway
    for factors in (COARSE, FINE):
        tried = [
            np.minimum(share * factors, 1.0) if move else np.ones(1)
            for share, move in zip(shares, moves, strict=True)
        ]
        shares = errors.best(low, high, tried)
    return low * shares[0], high * shares[1]


class GridErrors:
    """Squared error, summed over a histogram, of the grids of many ranges at once."""

    def __init__(
        self,
        histogram: NDArray[np.int64],
        low: float,
        high: float,
        qscheme: QScheme,
        qdtype: QDtype,
        eps: float,
    ) -> None:
        self.qscheme, self.qdtype, self.eps = qscheme, qdtype, eps
        self.centres = bin_centres(histogram, low, high)
        powers = (histogram * self.centres**power for power in (0, 1, 2))
        self.moments = [np.concatenate([[0.0], np.cumsum(power)]) for power in powers]

    def of(self, lows: NDArray[np.float64], highs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The error of each range; rounding costs a twelfth of the squared step a value."""
        scale, zero_point = calculate_qparams(
            lows.astype(np.float32), highs.astype(np.float32), self.qscheme, self.qdtype, self.eps
        )
        step, zero = scale.astype(np.float64), zero_point.astype(np.float64)
        first, last = ((q - zero) * step for q in (self.qdtype.quant_min, self.qdtype.quant_max))
        below = np.searchsorted(self.centres, first)
        above = np.searchsorted(self.centres, last, side="right")
        n, x, xx = self.moments
        left = xx[below] - 2 * first * x[below] + first**2 * n[below]
        right = (xx[-1] - xx[above]) - 2 * last * (x[-1] - x[above]) + last**2 * (n[-1] - n[above])
        return np.asarray(left + right + (n[above] - n[below]) * step**2 / 12, np.float64)

    def best(
        self, low: float, high: float, shares: Sequence[NDArray[np.float64]]
    ) -> tuple[float, float]:
        """The shares of the two ends of least error; earlier ones win ties."""
        lows, highs = np.meshgrid(*shares, indexing="ij")
        index = np.unravel_index(np.argmin(self.of(lows * low, highs * high)), lows.shape)
        return float(lows[index]), float(highs[index])


def bin_centres(histogram: NDArray[np.int64], low: float, high: float) -> NDArray[np.float64]:
    """The middle of each bin, a real value."""
    width = (high - low) / histogram.size
    return np.asarray(low + (np.arange(histogram.size) + 0.5) * width, np.float64)
