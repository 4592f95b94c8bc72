"""Error statistics of one tensor, summed up as samples pass: memory does not depend on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.ir.grids import CodeGrid
from lucid_fx.ir.pairing import EVERYTHING

CHUNK = 1 << 15
"""Elements looked at together, so that intermediate arrays stay in the cache."""
COUNTED = 1 << 13
"""Codes of a tensor that are counted in each sample, evenly spread."""


@dataclass
class TensorError:
    """What a tensor lost against its float twin.

    Attributes:
        grid: of the codes; None for real values.
        needed: range outside which no reader tells values apart; the float values lie within.
        signal, noise: sums of squares of the float tensor, and of the difference.
        largest: largest absolute difference.
        elements: finite float elements seen.
        clipped: of these, those more than half a step outside the grid.
        outside: sum of squares of how far they are from its end.
        low, high: smallest and largest finite float value.
        counts: how often each code was met, the smallest code first, of those that are counted.
    """

    grid: CodeGrid | None = None
    needed: tuple[float, float] = EVERYTHING
    signal: float = 0.0
    noise: float = 0.0
    largest: float = 0.0
    elements: int = 0
    clipped: int = 0
    outside: float = 0.0
    low: float = np.inf
    high: float = -np.inf
    counts: NDArray[Any] | None = None

    def add(self, exact: NDArray[Any], given: NDArray[Any]) -> None:
        """Take one sample: the float tensor, and codes (or real values) of the same shape."""
        exact, given = exact.reshape(-1), given.reshape(-1)
        for start in range(0, exact.size, CHUNK):
            self._add(exact[start : start + CHUNK], given[start : start + CHUNK])

    def _add(self, exact: NDArray[Any], given: NDArray[Any]) -> None:
        grid = self.grid
        error = given.astype(np.float32)
        if grid is not None:
            error -= grid.zero_point
            error *= grid.scale
        if self.needed != EVERYTHING:
            np.clip(error, *self.needed, out=error)
        error -= exact
        with np.errstate(invalid="ignore", over="ignore"):
            noise, signal = float(np.dot(error, error)), float(np.dot(exact, exact))
        if not np.isfinite(signal):
            known = np.isfinite(exact) & (np.abs(exact) < LARGEST)
            if known.any():
                self._add(exact[known], given[known])
            return
        self.signal += signal
        self.noise += noise if np.isfinite(noise) else np.inf
        self.largest = max(self.largest, float(error.max()), -float(error.min()))
        self.elements += exact.size
        least, most = float(exact.min()), float(exact.max())
        self.low, self.high = min(self.low, least), max(self.high, most)
        if grid is not None:
            low, high = grid.range
            half = grid.scale / 2
            if most > high + half or least < low - half:
                outside = (exact > high + half) | (exact < low - half)
                beyond = exact[outside].astype(np.float64)
                self.clipped += beyond.size
                self.outside += float(np.sum((beyond - np.clip(beyond, low, high)) ** 2))

    def count(self, codes: NDArray[Any]) -> None:
        """Count the codes of one sample, or as many of them as are enough."""
        if self.grid is None or not codes.size:
            return
        flat = codes.reshape(-1)
        some = flat[:: max(1, flat.size // COUNTED)].astype(np.int64)
        least, most = self.grid.codes
        found = np.bincount(some - least, minlength=most - least + 1)
        self.counts = found if self.counts is None else self.counts + found

    @property
    def codes_used(self) -> int:
        """How many codes were met, of those that were counted."""
        return 0 if self.counts is None else int(np.count_nonzero(self.counts))

    @property
    def grid_noise(self) -> float:
        """Noise that the grid alone makes: rounding, uniform in a step, and what is outside."""
        if self.grid is None:
            return 0.0
        return self.outside + self.elements * self.grid.scale**2 / 12

    @property
    def sqnr_db(self) -> float | None:
        """Signal-to-quantization-noise ratio in dB; None where the float tensor is all zero.

        150 dB stands for no error at all: float32 keeps no more.
        """
        return decibels(self.signal, self.noise)


LARGEST = 1e18
"""Beyond this float32 cannot hold the square; such values are masks."""

MOST_DB = 150.0


def decibels(signal: float, noise: float) -> float | None:
    """10·log10 of signal over noise, at most `MOST_DB`; None where there is no signal."""
    if not signal > 0:
        return None
    if noise == np.inf:
        return -MOST_DB
    return min(MOST_DB, 10 * float(np.log10(signal / max(noise, signal * 1e-15))))
