"""Which part of a histogram's range a grid should cover (affine specification, section 5).

A wide grid has a coarse step, a narrow one saturates what lies outside. Both searches weigh the
squared errors of the two (real value squared) over a histogram of equal bins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lucid_fx.quantization.dtypes import QDtype, QScheme
from lucid_fx.quantization.qparams import calculate_qparams

CLIP_FRACTIONS = (0.0, 1e-5, 1e-4, 1e-3, 5e-3, 1e-2)
"""Shares of the mass that `paired_clip` tries to cut off, the same at both tails."""

COARSE = 2.0 ** (-np.arange(33) / 4)
"""Factors that `independent_clip` tries first: 1 down to 1/256."""

FINE = 2.0 ** np.linspace(1 / 4, -1 / 4, 33)
"""Factors that it tries then, up to the neighbours in `COARSE`."""

TOGETHER, LOW, HIGH = (1, 1), (1, 0), (0, 1)
"""Which of the two ends a factor moves."""


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
    centres = low + (np.arange(histogram.size) + 0.5) * ((high - low) / histogram.size)
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
    a rounded zero point. The ends are multiplied by factors, one by one and together, first
    coarsely, then finely around the best; less clipping wins ties.

    Args:
        histogram: counts of equal bins between ``low`` and ``high`` (real values).
        low, high: the ends of the histogram.
        qscheme, qdtype, eps: what the grid is made with.

    Returns:
        Two real values with zero between them, or one of them zero; ``(low, high)`` where there is
        no mass, or no width.
    """
    if not histogram.any() or high <= low:
        return low, high
    errors = GridErrors(histogram, low, high, qscheme, qdtype, eps)
    whole = np.array([min(low, 0.0), max(high, 0.0)])
    best, moves = whole, (HIGH, LOW, TOGETHER) if whole.all() else (TOGETHER,)
    for factors in (COARSE, FINE):
        for move in moves:
            tried = np.clip(best * np.power.outer(factors, move), *whole)
            best = tried[np.argmin(errors.of(*tried.T))]
    return float(best[0]), float(best[1])


class GridErrors:
    """Squared error, summed over a histogram, of the grids of many ranges at once.

    Values are taken to lie evenly in their bin. In code steps from real zero, the error at ``u`` is
    ``(u - n)²`` with ``n`` the nearest code of the grid; its integral from zero is
    ``n / 12 + (u - n)³ / 3``, inside the grid and outside.
    """

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
        self.edges = np.linspace(low, high, histogram.size + 1)
        self.density = histogram * (histogram.size / (high - low))

    def of(self, lows: NDArray[np.float64], highs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The error (real value squared) of each range."""
        scale, zero_point = calculate_qparams(
            lows.astype(np.float32), highs.astype(np.float32), self.qscheme, self.qdtype, self.eps
        )
        step, zero = (numbers.astype(np.float64)[:, None] for numbers in (scale, zero_point))
        steps = self.edges / step
        codes = np.rint(steps)
        np.clip(codes, self.qdtype.quant_min - zero, self.qdtype.quant_max - zero, out=codes)
        steps -= codes
        integral = codes / 12 + steps * steps * steps / 3
        return np.asarray((np.diff(integral) @ self.density) * step[:, 0] ** 3, np.float64)
