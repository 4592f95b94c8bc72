"""Observers that run in Python: those of the user, and all of them without the native library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.native.observers import ObserverState
from lucid_fx.quantization import ObserverBase


class PythonObserving:
    """Hands batches to observers one at a time, and counts what the statistics leave out.

    Args:
        observers: value name → observer.
    """

    def __init__(self, observers: Mapping[str, ObserverBase]) -> None:
        self.observers = observers
        self._counts: dict[str, ObserverState] = {}

    def update(self, value: str, batch: NDArray[Any]) -> None:
        """Take one batch of a value into its observer, without what is not finite."""
        array = np.asarray(batch, np.float32)
        state = self._counts.setdefault(value, ObserverState("python"))
        state.batches += 1
        state.elements += array.size
        state.max_elements = max(state.max_elements, array.size)
        state.nan_count += int(np.isnan(array).sum())
        state.inf_count += int(np.isinf(array).sum())
        known = _finite(array, self.observers[value].ch_axis)
        if known is not None:
            self.observers[value].forward(known)

    def counts(self) -> dict[str, ObserverState]:
        """For each value the numbers of batches, elements, NaN and infinities; no statistics."""
        return self._counts

    def reset(self) -> None:
        """Forget the counts; the observers are reset by whoever owns them."""
        self._counts.clear()


def _finite(array: NDArray[np.float32], ch_axis: int | None) -> NDArray[np.float32] | None:
    """The batch without NaN and infinities; None where nothing that counts is left.

    A channel keeps its shape: its holes are filled with its smallest finite value, which moves
    neither end of its range. A batch in which a channel has no finite value at all is left out.
    """
    known = np.isfinite(array)
    if not array.size:
        return None
    if known.all():
        return array
    if ch_axis is None:
        return array[known] if known.any() else None
    axes = tuple(axis for axis in range(array.ndim) if axis != ch_axis % array.ndim)
    least = np.where(known, array, np.inf).min(axis=axes, keepdims=True)
    if not np.isfinite(least).all():
        return None
    return np.where(known, array, least).astype(np.float32)
