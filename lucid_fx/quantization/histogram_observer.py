"""The histogram observer, which clips the range for the least squared error.

Source: the affine specification, section 5 ("Counting", "Growth", "Clip search").
"""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike

from lucid_fx.quantization.arrays import as_float32
from lucid_fx.quantization.clip_search import independent_clip, paired_clip
from lucid_fx.quantization.dtypes import QDtype, QScheme, per_tensor_affine, quint8
from lucid_fx.quantization.histogram import count, regrow
from lucid_fx.quantization.observers import Ends, MinMaxObserver, ObserverBase
from lucid_fx.quantization.qparams import DEFAULT_EPS

Search = Literal["paired", "independent"]


class HistogramObserver(MinMaxObserver):
    """A histogram that grows with the data, and the clip range of least squared error.

    Args:
        bins: number of equal bins between the smallest and the largest value seen.
        qscheme, qdtype, eps: the grid to derive, and its smallest scale (real value of one step).
        search: how the clip range is found. ``"paired"`` is the specification's: six shares of
            the mass, the same at both tails, between bin centres. ``"independent"`` moves each
            end by itself and measures the grid that will really be used.

    Two of them `merge` by moving both histograms to the union of their ranges, each bin's count
    whole to the bin that holds its centre, as growth does. The range and the sum of counts are
    those of all data; a count may lie a bin beside where it would if seen at once.
    """

    native_kind = "histogram"
    _state = ("min_val", "max_val", "histogram")
    _settings = (*ObserverBase._settings, "bins")

    def __init__(
        self,
        bins: int = 2048,
        qscheme: QScheme = per_tensor_affine,
        qdtype: QDtype = quint8,
        eps: float = DEFAULT_EPS,
        *,
        search: Search = "paired",
    ) -> None:
        if bins < 1:
            raise ValueError(f"bins is {bins}, expected at least 1")
        if search not in get_args(Search):
            raise ValueError(f"search is {search!r}, expected one of {', '.join(get_args(Search))}")
        self.bins, self.search = bins, search
        super().__init__(qscheme, qdtype, eps)

    def reset(self) -> None:
        """Back to an empty histogram."""
        super().reset()
        self.histogram = np.zeros(self.bins, np.int64)

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Count a batch on the union of the old range and its own.

        Raises:
            ValueError: no values, or some that are not finite and have no bin.
        """
        values = as_float32(x)
        low, high = self._ends(values)
        if not np.isfinite(values).all():
            raise ValueError(
                f"x of shape {values.shape} holds {(~np.isfinite(values)).sum()} values that are"
                " not finite and have no bin; remove them first"
            )
        self._grow(low, high)
        counts = count(values, float(self.min_val), float(self.max_val), self.bins)
        self.histogram = self.histogram + counts
        return x

    def _grow(self, low: Any, high: Any) -> None:
        old = (np.float32(self.min_val), np.float32(self.max_val))
        self._widen(low, high)
        if self.histogram.any():
            new = (np.float32(self.min_val), np.float32(self.max_val))
            self.histogram = regrow(self.histogram, old, new)

    def _merge(self, other: Self) -> None:
        if not other.histogram.any():
            return
        its = (np.float32(other.min_val), np.float32(other.max_val))
        self._grow(*its)
        both = (np.float32(self.min_val), np.float32(self.max_val))
        self.histogram = self.histogram + regrow(other.histogram, its, both)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take statistics from `state_dict`; ``bins`` becomes that of the stored histogram."""
        super().load_state_dict(state)
        self.bins = self.histogram.size

    def range(self) -> Ends:
        """The clip range of the least expected squared error on this grid."""
        ends = float(self.min_val), float(self.max_val)
        if self.search == "paired":
            steps = self.qdtype.quant_max - self.qdtype.quant_min
            low, high = paired_clip(self.histogram, *ends, steps)
        else:
            low, high = independent_clip(self.histogram, *ends, self.qscheme, self.qdtype, self.eps)
        return np.asarray(low, np.float32), np.asarray(high, np.float32)
