"""The observers of the native library: statistics of tensors in constant memory, found by key."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.errors import NativeLibraryError
from lucid_fx.native.library import NativeLibrary, Signature

KINDS = (
    "minmax",
    "moving_average",
    "per_channel",
    "per_channel_moving_average",
    "histogram",
)
"""The kinds whose whole state is an `ObserverState`; a Gram matrix (``gram``) is read apart."""

_ELEMENT_TYPES = {np.dtype(np.float32): 1, np.dtype(np.float16): 10, np.dtype(np.float64): 11}


@dataclass
class ObserverState:
    """Everything one observer has recorded.

    ``min_val`` and ``max_val`` are the statistic of the kind: the moving averages for
    ``moving_average``, the range of all data for every other kind. ``overall_min`` and
    ``overall_max`` are the range of all data whatever the kind. Values that are not finite are
    counted and otherwise ignored; without a finite value a range is (+inf, -inf).
    """

    kind: str
    batches: int = 0
    elements: int = 0
    max_elements: int = 0
    nan_count: int = 0
    inf_count: int = 0
    min_val: float = math.inf
    max_val: float = -math.inf
    channel_min: NDArray[np.float32] | None = None
    channel_max: NDArray[np.float32] | None = None
    histogram: NDArray[np.int64] | None = None
    histogram_min: float = math.inf
    histogram_max: float = -math.inf
    overall_min: float | None = None
    overall_max: float | None = None
    columns: int = 0  # of a Gram matrix, which NativeObservers.gram gives

    def __post_init__(self) -> None:
        if self.overall_min is None:
            self.overall_min = self.min_val
        if self.overall_max is None:
            self.overall_max = self.max_val


class _Config(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_char_p),
        ("bins", ctypes.c_int64),
        ("averaging_constant", ctypes.c_float),
        ("ch_axis", ctypes.c_int64),
    )


class _State(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_char_p),
        ("batches", ctypes.c_int64),
        ("elements", ctypes.c_int64),
        ("max_elements", ctypes.c_int64),
        ("nan_count", ctypes.c_int64),
        ("inf_count", ctypes.c_int64),
        ("overall_min", ctypes.c_float),
        ("overall_max", ctypes.c_float),
        ("average_min", ctypes.c_float),
        ("average_max", ctypes.c_float),
        ("histogram_min", ctypes.c_float),
        ("histogram_max", ctypes.c_float),
        ("channels", ctypes.c_int64),
        ("bins", ctypes.c_int64),
        ("columns", ctypes.c_int64),
    )


def _signatures() -> dict[str, Signature]:
    pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    config, state = ctypes.POINTER(_Config), ctypes.POINTER(_State)
    update = (ctypes.c_int, text, config, ctypes.c_int32, pointer)
    return {
        "lfx_observer_update": (*update, ctypes.POINTER(ctypes.c_int64), size, text),
        "lfx_observer_read": (ctypes.c_int, text, state, pointer, pointer, pointer),
        "lfx_observer_gram": (ctypes.c_int, text, pointer, ctypes.c_int64),
        "lfx_observer_load": (ctypes.c_int, text, config, state, pointer, pointer, pointer),
        "lfx_observer_nonfinite": (ctypes.c_int64, text),
        "lfx_observer_reset": (None, text),
    }


class NativeObservers:
    """The observers of the loaded library. They are process-wide and found by key.

    Args:
        library: the loaded library.
    """

    def __init__(self, library: NativeLibrary) -> None:
        self._library = library
        self._functions = library.bind(_signatures())

    def update(
        self,
        key: str,
        x: NDArray[Any],
        *,
        kind: str,
        bins: int = 2048,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        isa: str | None = None,
    ) -> None:
        """Record one batch, as the op ``lucid_fx.Observe`` does; ``isa`` forces a kernel set."""
        dtype = _ELEMENT_TYPES.get(x.dtype)
        if dtype is None:
            raise NativeLibraryError(f"observers take float tensors, not {x.dtype}", tensor=key)
        data = np.require(x, requirements="C")
        dims = (ctypes.c_int64 * x.ndim)(*x.shape)
        config = _Config(kind.encode(), bins, averaging_constant, ch_axis)
        self._library.check(
            self._functions.lfx_observer_update(
                key.encode(),
                ctypes.byref(config),
                dtype,
                data.ctypes.data,
                dims,
                x.ndim,
                None if isa is None else isa.encode(),
            ),
            tensor=key,
        )

    def state(self, key: str, *, arrays: bool = True) -> ObserverState | None:
        """Return what the observer has recorded; None when no batch reached this key.

        Args:
            key: the observer's.
            arrays: False leaves ranges per channel and the histogram out.
        """
        raw = _State()
        self._library.check(
            self._functions.lfx_observer_read(key.encode(), ctypes.byref(raw), *(None,) * 3),
            tensor=key,
        )
        if raw.kind is None:
            return None
        low, high = np.empty((2, raw.channels if arrays else 0), np.float32)
        counts = np.empty(raw.bins if arrays else 0, np.int64)
        if low.size or counts.size:
            buffers = (low.ctypes.data, high.ctypes.data, counts.ctypes.data)
            self._library.check(
                self._functions.lfx_observer_read(key.encode(), ctypes.byref(raw), *buffers),
                tensor=key,
            )
        averaged = raw.kind == b"moving_average"
        return ObserverState(
            kind=raw.kind.decode(),
            batches=raw.batches,
            elements=raw.elements,
            max_elements=raw.max_elements,
            nan_count=raw.nan_count,
            inf_count=raw.inf_count,
            min_val=raw.average_min if averaged else raw.overall_min,
            max_val=raw.average_max if averaged else raw.overall_max,
            channel_min=low if low.size else None,
            channel_max=high if low.size else None,
            histogram=counts if counts.size else None,
            histogram_min=raw.histogram_min,
            histogram_max=raw.histogram_max,
            overall_min=raw.overall_min,
            overall_max=raw.overall_max,
            columns=raw.columns,
        )

    def gram(self, key: str, columns: int) -> NDArray[np.float64]:
        """``X.T @ X`` over all rows of the last axis that an observer of kind ``gram`` saw.

        Returns:
            ``[columns, columns]``; what was not finite counts as zero.

        Raises:
            NativeLibraryError: nothing of that width was seen.
        """
        found = np.empty((columns, columns), np.float64)
        self._library.check(
            self._functions.lfx_observer_gram(key.encode(), found.ctypes.data, columns), tensor=key
        )
        return found

    def load_state(
        self,
        key: str,
        state: ObserverState,
        *,
        bins: int | None = None,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
    ) -> None:
        """Replace what the observer has recorded; a histogram also tells ``bins``."""
        low, high, counts = _vectors(state, key)
        if bins is None:
            bins = counts.size or 2048
        averaged = state.kind == "moving_average"
        raw = _State(
            batches=state.batches,
            elements=state.elements,
            max_elements=state.max_elements,
            nan_count=state.nan_count,
            inf_count=state.inf_count,
            overall_min=state.overall_min if averaged else state.min_val,
            overall_max=state.overall_max if averaged else state.max_val,
            average_min=state.min_val if averaged else math.inf,
            average_max=state.max_val if averaged else -math.inf,
            histogram_min=state.histogram_min,
            histogram_max=state.histogram_max,
            channels=low.size,
            bins=counts.size,
        )
        config = _Config(state.kind.encode(), bins, averaging_constant, ch_axis)
        buffers = (low.ctypes.data, high.ctypes.data, counts.ctypes.data)
        self._library.check(
            self._functions.lfx_observer_load(
                key.encode(), ctypes.byref(config), ctypes.byref(raw), *buffers
            ),
            tensor=key,
        )

    def nonfinite(self, prefix: str) -> int:
        """How many NaN and infinities all observers saw whose key starts with ``prefix``."""
        return int(self._functions.lfx_observer_nonfinite(prefix.encode()))

    def reset(self, prefix: str) -> None:
        """Forget all observers whose key starts with ``prefix``; live sessions may go on."""
        self._functions.lfx_observer_reset(prefix.encode())


def _vectors(
    state: ObserverState, key: str
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    low = np.ascontiguousarray([] if state.channel_min is None else state.channel_min, np.float32)
    high = np.ascontiguousarray([] if state.channel_max is None else state.channel_max, np.float32)
    counts = np.ascontiguousarray([] if state.histogram is None else state.histogram, np.int64)
    if low.shape != high.shape:
        raise NativeLibraryError("channel_min and channel_max differ in length", tensor=key)
    return low, high, counts
