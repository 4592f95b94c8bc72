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

from lucid_fx.quantization.arrays import as_float32
from lucid_fx.quantization.dtypes import (
    QDtype,
    QScheme,
    per_channel_symmetric,
    per_tensor_affine,
    qint8,
    quint8,
)
from lucid_fx.quantization.qparams import DEFAULT_EPS, QParams, calculate_qparams

ObserverFactory = Callable[[], "ObserverBase"]
Ends = tuple[NDArray[np.float32], NDArray[np.float32]]


class ObserverBase:
    """Abstract observer; subclass it and give `forward` and `range` to bring your own.

    Args:
        qscheme, qdtype: the grid to derive.
        ch_axis: channel axis; kept only for per-channel schemes.
        eps: the smallest scale (real value of one code step).
    """

    native_kind: str | None = None
    """The kind of native op that gathers the same statistics; None runs `forward` in Python."""
    _state: tuple[str, ...] = ()
    _settings: tuple[str, ...] = ("qscheme", "qdtype", "ch_axis", "eps")

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
        """Take one batch of real values into the statistics; returns ``x`` itself."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def range(self) -> Ends:
        """The real range that the grid should cover."""
        raise NotImplementedError(f"{type(self).__name__} has no range")

    def calculate_qparams(self) -> Ends:
        """Scale and zero point of what was seen so far, float32, ``()`` or ``(C,)`` each.

        Raises:
            ValueError: NaN or an infinity was seen, for which there is no grid.
        """
        if type(self).range is ObserverBase.range:
            raise NotImplementedError(f"{type(self).__name__} does not calculate qparams")
        return calculate_qparams(*self.range(), self.qscheme, self.qdtype, self.eps)

    def qparams(self) -> QParams:
        """`calculate_qparams` as one value."""
        return QParams(*self.calculate_qparams(), self.qscheme, self.qdtype, self.ch_axis)

    def reset(self) -> None:
        """Forget everything seen."""

    def merge(self, other: Self) -> Self:
        """Take in what another observer saw; the same as having seen its batches too.

        Raises:
            ValueError: the other one is of another class or setting; the text names it.
        """
        if type(other) is not type(self):
            raise ValueError(
                f"{type(self).__name__} cannot merge a {type(other).__name__}; both must be of one"
                " class"
            )
        for name in self._settings:
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise ValueError(
                    f"{type(self).__name__}s that differ in {name} cannot merge: {mine!r}, {its!r}"
                )
        self._merge(other)
        return self

    def _merge(self, other: Self) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no merge")

    def state_dict(self) -> dict[str, Any]:
        """The statistics, exact and JSON-safe: lists and numbers, infinities as JSON has them."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take statistics from `state_dict`, of whatever shape they have.

        Raises:
            ValueError: a statistic is missing.
        """
        if missing := [name for name in self._state if name not in state]:
            raise ValueError(
                f"the state of a {type(self).__name__} has no {', '.join(missing)}; it has"
                f" {', '.join(state) or 'nothing'}"
            )
        for name in self._state:
            kind = np.asarray(getattr(self, name)).dtype
            setattr(self, name, np.asarray(state[name], dtype=kind))

    @classmethod
    def with_args(cls, **kwargs: Any) -> Callable[[], Self]:
        """A factory with these constructor arguments, for `QConfig`."""
        return partial(cls, **kwargs)


class MinMaxObserver(ObserverBase):
    """Running minimum and maximum of all values, per tensor (section 5).

    Infinities are recorded, and NaN makes both ends NaN for good: such statistics give no grid.

    Args:
        qscheme, qdtype: the grid to derive; affine per tensor on quint8 unless told otherwise.
        eps: the smallest scale (real value of one code step), 1e-8.
        ch_axis: carried into `qparams` for a per-channel scheme; the statistics have no channels.
    """

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

    def _ends(self, x: ArrayLike) -> Ends:
        """Smallest and largest value of a batch, in the shape of the statistics."""
        values = as_float32(x)
        if not values.size:
            raise ValueError(f"x has shape {values.shape}, expected at least one value")
        low, high = self._batch(values)
        if self.min_val.ndim and low.shape != self.min_val.shape:
            raise ValueError(
                f"x has shape {values.shape}, expected {self.min_val.size} channels on axis"
                f" {self.ch_axis}, as before"
            )
        return low, high

    def _batch(self, x: NDArray[np.float32]) -> Ends:
        return np.asarray(x.min()), np.asarray(x.max())

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Widen the running range by the batch's."""
        self._widen(*self._ends(x))
        return x

    def _widen(self, low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
        self.min_val = np.asarray(np.minimum(self.min_val, low), np.float32)
        self.max_val = np.asarray(np.maximum(self.max_val, high), np.float32)

    def range(self) -> Ends:
        """The running minimum and maximum."""
        return self.min_val, self.max_val

    def _merge(self, other: Self) -> None:
        counts = self.min_val.shape, other.min_val.shape
        if all(counts) and counts[0] != counts[1]:
            raise ValueError(
                f"{type(self).__name__}s with {counts[0][0]} and {counts[1][0]} channels cannot"
                " merge"
            )
        self._widen(other.min_val, other.max_val)


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Exponential moving average of each batch's minimum and maximum (section 5).

    Args:
        averaging_constant: weight of a new batch, 0.01; the first batch is taken whole.
        qscheme, qdtype, eps, ch_axis: as for `MinMaxObserver`.

    Two averages `merge` only where one has seen nothing: what they say depends on the order of
    the batches, and the statistics do not hold enough to put one stream behind the other.
    """

    native_kind = "moving_average"
    _settings = (*ObserverBase._settings, "averaging_constant")

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
        low, high = self._ends(x)
        if np.isinf(self.min_val).all():
            self.min_val, self.max_val = low, high
            return x
        c = np.float32(self.averaging_constant)
        with np.errstate(invalid="ignore", over="ignore"):
            self.min_val = np.asarray(self.min_val + c * (low - self.min_val), np.float32)
            self.max_val = np.asarray(self.max_val + c * (high - self.max_val), np.float32)
        return x

    def _merge(self, other: Self) -> None:
        if not any(np.isinf(observer.min_val).all() for observer in (self, other)):
            raise ValueError(
                f"{type(self).__name__}s that have both seen data cannot merge, since an average"
                " depends on the order of the batches; let one see all of them, or use a"
                " MinMaxObserver or a HistogramObserver"
            )
        super()._merge(other)


class _PerChannel(MinMaxObserver):
    """What the two observers of channels share: a range for each index along ``ch_axis``."""

    def _batch(self, x: NDArray[np.float32]) -> Ends:
        axis, rank = self.ch_axis, x.ndim
        if axis is None or not -rank <= axis < rank:
            raise IndexError(
                f"ch_axis is {axis}, expected {-rank} .. {rank - 1} for an input of shape {x.shape}"
            )
        rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
        return rows.min(axis=1), rows.max(axis=1)


class PerChannelMinMaxObserver(_PerChannel):
    """Running minimum and maximum of each channel along ``ch_axis`` (section 5).

    Args:
        ch_axis: the axis that keeps its indices apart; all others are reduced. 0.
        qscheme, qdtype: the grids to derive; symmetric per channel on qint8.
        eps: the smallest scale (real value of one code step), 1e-8.

    Raises:
        ValueError: a per-tensor ``qscheme``.
    """

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


class MovingAveragePerChannelMinMaxObserver(_PerChannel, MovingAverageMinMaxObserver):
    """Exponential moving average of each channel's minimum and maximum (section 5).

    Args:
        averaging_constant: weight of a new batch, 0.01; the first batch is taken whole.
        ch_axis, qscheme, qdtype, eps: as for `PerChannelMinMaxObserver`.
    """

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


def _require_per_channel(observer: ObserverBase, qscheme: QScheme) -> None:
    if not qscheme.is_per_channel:
        raise ValueError(
            f"{type(observer).__name__} needs a per-channel qscheme, got {qscheme.value}"
        )
