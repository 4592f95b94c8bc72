"""Error statistics of one tensor, summed up as samples pass: memory does not depend on them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.ir.grids import CodeGrid
from lucid_fx.ir.pairing import EVERYTHING
from lucid_fx.native.library import load
from lucid_fx.native.noise import NativeNoise, NoiseForm, NoiseSums

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
        elements: float elements seen or stood for, without masks and what is not finite.
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

    def __post_init__(self) -> None:
        self._form = _form(self.grid, self.needed)

    def add(self, exact: NDArray[Any], given: NDArray[Any], weight: float = 1.0) -> None:
        """Take one sample: the float tensor, and codes (or real values) of the same shape.

        `weight` is how many elements one of these stands for, where they are a part of a tensor.
        """
        exact, given = exact.reshape(-1), given.reshape(-1)
        native = _native()
        if native is not None and native.takes(exact, given):
            sums = native.sums(self._form, exact, given)
        else:
            sums = noise_sums(self._form, exact, given)
        self.signal += sums.signal * weight
        self.noise += sums.noise * weight
        self.largest = max(self.largest, sums.largest)
        self.elements += round(sums.elements * weight)
        self.clipped += round(sums.clipped * weight)
        self.outside += sums.outside * weight
        self.low, self.high = min(self.low, sums.low), max(self.high, sums.high)

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


@functools.cache
def _native() -> NativeNoise | None:
    library = load()
    return None if library is None else NativeNoise(library)


def _form(grid: CodeGrid | None, needed: tuple[float, float]) -> NoiseForm:
    if grid is None:
        return NoiseForm(0, 1, *needed, *EVERYTHING, *EVERYTHING)
    (low, high), half = grid.range, grid.scale / 2
    return NoiseForm(grid.zero_point, grid.scale, *needed, low - half, high + half, low, high)


def noise_sums(form: NoiseForm, exact: NDArray[Any], given: NDArray[Any]) -> NoiseSums:
    """What `TensorError` adds up, of one-dimensional arrays: the definition of `NativeNoise`."""
    sums = NoiseSums.of_nothing()
    for start in range(0, exact.size, CHUNK):
        _add(sums, form, exact[start : start + CHUNK], given[start : start + CHUNK])
    return sums


def _add(sums: NoiseSums, form: NoiseForm, exact: NDArray[Any], given: NDArray[Any]) -> None:
    known = np.abs(exact) < LARGEST
    if not known.all():
        exact, given = exact[known], given[known]
    if not exact.size:
        return
    with np.errstate(invalid="ignore", over="ignore"):
        real = (given.astype(np.float32) - form.zero_point) * form.scale
        error = np.clip(real, form.needed_low, form.needed_high) - exact
        noise = float(np.dot(error, error))
    sums.signal += float(np.dot(exact, exact))
    sums.noise += noise if np.isfinite(noise) else np.inf
    sums.largest = np.fmax.reduce(np.abs(error), initial=sums.largest)
    sums.elements += exact.size
    sums.low, sums.high = min(sums.low, exact.min()), max(sums.high, exact.max())
    beyond = exact[(exact < form.below) | (exact > form.above)].astype(np.float64)
    sums.clipped += beyond.size
    sums.outside += float(np.sum((beyond - np.clip(beyond, form.low, form.high)) ** 2))


LARGEST = 1e16
"""Larger values are masks: of those below, the squares of a chunk add up in float32."""

MOST_DB = 150.0


def decibels(signal: float, noise: float) -> float | None:
    """10·log10 of signal over noise, at most `MOST_DB`; None where there is no signal."""
    if not signal > 0:
        return None
    if noise == np.inf:
        return -MOST_DB
    return min(MOST_DB, 10 * float(np.log10(signal / max(noise, signal * 1e-15))))
