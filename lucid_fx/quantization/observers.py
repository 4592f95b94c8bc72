"""Observers: statistics of what passed by, and the range that they make of it.

Source: the affine specification, section 5. The arithmetic lives here once; the native op
``lucid_fx.Observe`` only gathers the same statistics faster and hands them over through
`load_state_dict`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.dtypes import (
    QDtype,
    QScheme,
    per_channel_symmetric,
    per_tensor_affine,
    qint8,
    quint8,
)
from lucid_fx.quantization.histogram import CLIP_FRACTIONS, best_clip, count, regrow
from lucid_fx.quantization.qparams import DEFAULT_EPS, QParams, calculate_qparams

ObserverFactory = Callable[[], "ObserverBase"]


class ObserverBase:
    """Abstract observer; subclass it and give `forward` and `range` to bring your own.

    Args:
        qscheme, qdtype: the grid to derive.
        ch_axis: channel axis; kept only for per-channel schemes.
        eps: the smallest scale.
    """

    native_kind: str | None = None
    """The kind of native op that gathers the same statistics; None runs `forward` in Python."""
    _state: tuple[str, ...] = ()

    def __init__(
        self,
        qscheme: QScheme,
        qdtype: QDtype,
        ch_axis: int | None = None,
        eps: float = DEFAULT_EPS,
    ) -> None:
        self.qscheme, self.qdtype, self.eps = qscheme, qdtype, eps
        self.ch_axis = ch_axis if qscheme.is_per_channel else None
        self.reset()

    def __call__(self, x: ArrayLike) -> ArrayLike:
        """The same as `forward`."""
        return self.forward(x)

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Take one batch into the statistics; returns ``x`` itself."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def range(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The real range that the grid should cover."""
        raise NotImplementedError(f"{type(self).__name__} has no range")

    def calculate_qparams(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Scale and zero point of what was seen so far."""
        if type(self).range is ObserverBase.range:
            raise NotImplementedError(f"{type(self).__name__} does not calculate qparams")
        return calculate_qparams(*self.range(), self.qscheme, self.qdtype, self.eps)

    def qparams(self) -> QParams:
        """`calculate_qparams` as one value."""
        return QParams(*self.calculate_qparams(), self.qscheme, self.qdtype, self.ch_axis)

    def reset(self) -> None:
        """Forget everything seen."""

    def state_dict(self) -> dict[str, Any]:
        """The statistics, exact and JSON-safe."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take statistics from `state_dict`, of whatever shape they have."""
        for name in self._state:
            kind = np.asarray(getattr(self, name)).dtype
            setattr(self, name, np.asarray(state[name], dtype=kind))

    @classmethod
    def with_args(cls, **kwargs: Any) -> Callable[[], Self]:
        """A factory with these constructor arguments, for `QConfig`."""
        return partial(cls, **kwargs)


class MinMaxObserver(ObserverBase):
    """Running minimum and maximum of all values, per tensor."""

    native_kind = "minmax"
    _state: tuple[str, ...] = ("min_val", "max_val")

    def __init__(
        self,
        qscheme: QScheme = per_tensor_affine,
        qdtype: QDtype = quint8,
        eps: float = DEFAULT_EPS,
        *,
        ch_axis: int | None = None,
    ) -> None:
        super().__init__(qscheme, qdtype, ch_axis, eps)

    def reset(self) -> None:
        """Back to the seeds (+inf, -inf)."""
        self.min_val = np.asarray(np.inf, np.float32)
        self.max_val = np.asarray(-np.inf, np.float32)

    def _batch(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.asarray(x.min()), np.asarray(x.max())

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Widen the running range by the batch's."""
        low, high = self._batch(np.asarray(x, np.float32))
        self.min_val = np.asarray(np.minimum(self.min_val, low), np.float32)
        self.max_val = np.asarray(np.maximum(self.max_val, high), np.float32)
        return x

    def range(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The running minimum and maximum."""
        return self.min_val, self.max_val

    def merge(self, other: Self) -> Self:
        """Take in what another observer saw; equals having seen both, in any order."""
        self.min_val = np.asarray(np.minimum(self.min_val, other.min_val), np.float32)
        self.max_val = np.asarray(np.maximum(self.max_val, other.max_val), np.float32)
        return self


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Exponential moving average of each batch's minimum and maximum.

    Args:
        averaging_constant: weight of a new batch; the first batch is taken whole.
    """

    native_kind = "moving_average"

    def __init__(
        self,
        qscheme: QScheme = per_tensor_affine,
        qdtype: QDtype = quint8,
        averaging_constant: float = 0.01,
        eps: float = DEFAULT_EPS,
        *,
        ch_axis: int | None = None,
    ) -> None:
        self.averaging_constant = averaging_constant
        super().__init__(qscheme, qdtype, eps, ch_axis=ch_axis)

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Move each end of the range towards the batch's."""
        low, high = self._batch(np.asarray(x, np.float32))
        if np.isinf(self.min_val).all():
            self.min_val, self.max_val = low, high
            return x
        c = np.float32(self.averaging_constant)
        self.min_val = np.asarray(self.min_val + c * (low - self.min_val), np.float32)
        self.max_val = np.asarray(self.max_val + c * (high - self.max_val), np.float32)
        return x


class PerChannelMinMaxObserver(MinMaxObserver):
    """Running minimum and maximum of each channel along ``ch_axis``."""

    native_kind = "per_channel"

    def __init__(
        self,
        ch_axis: int = 0,
        qscheme: QScheme = per_channel_symmetric,
        qdtype: QDtype = qint8,
        eps: float = DEFAULT_EPS,
    ) -> None:
        _require_per_channel(self, qscheme)
        super().__init__(qscheme, qdtype, eps, ch_axis=ch_axis)

    def _batch(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return _channel_range(x, self.ch_axis)


class MovingAveragePerChannelMinMaxObserver(MovingAverageMinMaxObserver):
    """Exponential moving average of each channel's minimum and maximum."""

    native_kind = "per_channel_moving_average"

    def __init__(
        self,
        ch_axis: int = 0,
        qscheme: QScheme = per_channel_symmetric,
        qdtype: QDtype = qint8,
        averaging_constant: float = 0.01,
        eps: float = DEFAULT_EPS,
    ) -> None:
        _require_per_channel(self, qscheme)
        super().__init__(qscheme, qdtype, averaging_constant, eps, ch_axis=ch_axis)

    def _batch(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return _channel_range(x, self.ch_axis)


class HistogramObserver(MinMaxObserver):
    """A histogram that grows with the data, and the clip range of least squared error.

    Args:
        bins: number of equal bins between the smallest and the largest value seen.

    The search tries the same fraction at both tails (spec section 5, "Clip search").
    """

    native_kind = "histogram"
    _state = ("min_val", "max_val", "histogram")

    def __init__(
        self,
        bins: int = 2048,
        qscheme: QScheme = per_tensor_affine,
        qdtype: QDtype = quint8,
        eps: float = DEFAULT_EPS,
    ) -> None:
        if bins < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        self.bins = bins
        super().__init__(qscheme, qdtype, eps)
        self.ch_axis = None

    def reset(self) -> None:
        """Back to an empty histogram."""
        super().reset()
        self.histogram = np.zeros(self.bins, np.int64)

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Count a batch on the union of the old range and its own."""
        values = np.asarray(x, np.float32)
        self._grow(values.min(), values.max())
        self.histogram += count(values, float(self.min_val), float(self.max_val), self.bins)
        return x

    def _grow(self, low: np.float32, high: np.float32) -> None:
        if self.histogram.any():
            old = (np.float32(self.min_val), np.float32(self.max_val))
            low, high = np.minimum(low, old[0]), np.maximum(high, old[1])
            if (low, high) != old:
                self.histogram = regrow(self.histogram, old, (low, high))
        self.min_val, self.max_val = np.asarray(low, np.float32), np.asarray(high, np.float32)

    def merge(self, other: Self) -> Self:
        """Take in another histogram; both move to the union of the ranges by bin centres."""
        if not other.histogram.any():
            return self
        self._grow(np.float32(other.min_val), np.float32(other.max_val))
        both = (np.float32(self.min_val), np.float32(self.max_val))
        self.histogram = self.histogram + regrow(
            other.histogram, (np.float32(other.min_val), np.float32(other.max_val)), both
        )
        return self

    def range(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The clip range of the least expected squared error on this grid."""
        levels = self.qdtype.quant_max - self.qdtype.quant_min
        low, high = best_clip(
            self.histogram, float(self.min_val), float(self.max_val), levels, CLIP_FRACTIONS
        )
        return np.asarray(low, np.float32), np.asarray(high, np.float32)


class FixedQParamsObserver(ObserverBase):
    """Constants, for ops whose output range is known (Sigmoid: 1/256 and 0)."""

    def __init__(
        self,
        scale: float,
        zero_point: int,
        qscheme: QScheme = per_tensor_affine,
        qdtype: QDtype = quint8,
        eps: float = DEFAULT_EPS,
    ) -> None:
        self.scale = np.asarray(scale, np.float32)
        self.zero_point = np.asarray(zero_point, np.float32)
        super().__init__(qscheme, qdtype, None, eps)

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Nothing to learn."""
        return x

    def calculate_qparams(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The constants."""
        return self.scale, self.zero_point


def _require_per_channel(observer: ObserverBase, qscheme: QScheme) -> None:
    if not qscheme.is_per_channel:
        raise ValueError(
            f"{type(observer).__name__} needs a per-channel qscheme, got {qscheme.value}"
        )


def _channel_range(
    x: NDArray[np.float32], ch_axis: int | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rows = np.moveaxis(x, 0 if ch_axis is None else ch_axis, 0)
    rows = rows.reshape(rows.shape[0], -1)
    return rows.min(axis=1), rows.max(axis=1)
