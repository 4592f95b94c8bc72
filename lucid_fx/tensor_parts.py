"""Matching parts of a float tensor and its codes: shapes, layouts, and whether they are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.ir.pairing import EVERYTHING, Pair
from lucid_fx.tensor_error import TensorError

Array = NDArray[Any]

GLANCED = 1 << 13
"""Elements of a tensor that a glance takes, about, evenly spread along one axis."""
RESCALED = 10.0
"""A factor that leaves a tenth of the difference is a factor that a pass took out."""
ALIKE = 0.1
"""A tensor whose noise is less than this part of the signal has come through."""


def fit(pair: Pair, exact: tuple[int, ...], given: tuple[int, ...]) -> Pair | None:
    """The pair with layout and padding that the shapes allow; None where they do not fit."""
    if len(exact) != len(given):
        return None
    evening = pair.evening
    if evening is not None and evening.factor.size != exact[evening.axis]:
        return None
    layouts = (pair.channels_last, not pair.channels_last) if len(exact) >= 3 else (False,)
    for last in layouts:
        same = (given[0], given[-1], *given[1:-1]) if last else given
        others = exact[:1] + exact[2:] == same[:1] + same[2:]
        if same == exact:
            return replace(pair, channels_last=last)
        if len(exact) >= 3 and others and same[1] > exact[1]:
            return replace(pair, channels_last=last, padding=same[1] - exact[1])
    return None


def unpadded(array: Array, pair: Pair) -> Array:
    """Without the channels that only the quantized graph has; what is in them means nothing."""
    if not pair.padding:
        return array
    axis = -1 if pair.channels_last else 1
    return np.take(array, range(array.shape[axis] - pair.padding), axis)


def parts_of(
    pair: Pair, factor: float, exact: Array, given: Array, most: float = GLANCED
) -> tuple[Array, Array]:
    """Matching parts of a float tensor and of its codes, in the form of the float graph.

    `most` is how many elements to take, about; infinity for all.
    """
    codes = unpadded(given, pair)
    if pair.channels_last:
        codes = np.moveaxis(codes, -1, 1)
    axes = _free_axes(pair, exact.ndim)
    if exact.size > most and axes:
        axis = max(axes, key=lambda a: exact.shape[a])
        step = -(-exact.size // int(most))
        cut = (*[slice(None)] * axis, slice(step // 2 % exact.shape[axis], None, step))
        exact, codes = exact[cut], codes[cut]
    real = np.ascontiguousarray(exact, np.float32)
    if factor != 1.0:
        real = real * np.float32(factor)
    if pair.needed != EVERYTHING:
        low, high = pair.needed
        real = np.minimum(np.maximum(real, low), high)  # for few elements faster than np.clip
    if pair.evening is not None:
        shape = [-1] if pair.evening.axis == -1 else [-1] + [1] * (real.ndim - 2)
        real = real / pair.evening.factor.reshape(shape)
    return real, np.ascontiguousarray(codes)


def _free_axes(pair: Pair, ndim: int) -> list[int]:
    """Axes along which a part may be taken: not the channels', which all have to be there."""
    channels = {1} if ndim > 2 else set[int]()
    if pair.evening is not None:
        channels.add(pair.evening.axis % ndim)
    return [axis for axis in range(ndim) if axis not in channels]


def is_alike(pair: Pair, factor: float, exact: Array, given: Array) -> bool:
    """Whether the quantized graph has the values of a tensor, more or less."""
    error = TensorError(pair.grid)
    error.add(*parts_of(pair, factor, exact, given))
    return error.noise <= ALIKE * error.signal


def gain_of(pair: Pair, exact: Array, given: Array) -> float | None:
    """The factor by which the quantized tensor is another quantity; None where it is the same."""
    x, codes = parts_of(pair, 1.0, exact, given)
    x, codes = x.reshape(-1).astype(np.float64), codes.reshape(-1).astype(np.float64)
    y = codes if pair.grid is None else (codes - pair.grid.zero_point) * pair.grid.scale
    power = float(x @ x)
    if not np.isfinite(power) or power == 0:
        return None
    gain = float(x @ y) / power
    before, after = float(np.sum((y - x) ** 2)), float(np.sum((y - gain * x) ** 2))
    return gain if after * RESCALED < before and not 0.8 < gain < 1.25 else None
