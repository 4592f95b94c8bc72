"""Observers that learn nothing from data (affine specification, section 5)."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from lucid_fx.quantization.dtypes import QDtype, QScheme, per_tensor_affine, quint8
from lucid_fx.quantization.observers import Ends, ObserverBase
from lucid_fx.quantization.qparams import DEFAULT_EPS


class FixedQParamsObserver(ObserverBase):
    """Constants, for ops whose output range is known (Sigmoid: 1/256 and 0).

    Args:
        scale: real value of one code step, a number.
        zero_point: the code of real zero, a whole number.
        qscheme, qdtype: the grid; affine per tensor on quint8.
    """

    _state = ("scale", "zero_point")

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

    def calculate_qparams(self) -> Ends:
        """The constants."""
        return self.scale, self.zero_point

    def _merge(self, other: Self) -> None:
        for name in self._state:
            mine, its = getattr(self, name), getattr(other, name)
            if not np.array_equal(mine, its):
                raise ValueError(
                    f"{type(self).__name__}s that differ in {name} cannot merge: {mine}, {its}"
                )


class PlaceholderObserver(ObserverBase):
    """A grid's scheme and type without statistics, for values that get no grid before run time.

    Args:
        qscheme, qdtype, eps: kept for whoever asks; affine per tensor on quint8, 1e-8.
    """

    def __init__(
        self,
        qscheme: QScheme = per_tensor_affine,
        qdtype: QDtype = quint8,
        eps: float = DEFAULT_EPS,
    ) -> None:
        super().__init__(qscheme, qdtype, None, eps)

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Nothing to learn."""
        return x

    def calculate_qparams(self) -> Ends:
        """There are none.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"{type(self).__name__} collects no statistics, so it has no scale and zero point;"
            " observe with a MinMaxObserver or a HistogramObserver"
        )

    def _merge(self, other: Self) -> None:
        """Nothing to take in."""


class NoopObserver(PlaceholderObserver):
    """A `PlaceholderObserver` for values that stay real."""
