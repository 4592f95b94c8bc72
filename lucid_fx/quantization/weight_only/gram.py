"""`GramObserver`: the second moments of the inputs of a layer, as GPTQ needs them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.dtypes import QDtype, QScheme, per_tensor_affine, quint8
from lucid_fx.quantization.observers import ObserverBase
from lucid_fx.quantization.qparams import DEFAULT_EPS

_ROWS = 4096
"""Rows that are widened to float64 at once."""


class GramObserver(ObserverBase):
    """X^T X over the last axis of all batches, in float64; nothing else of them is kept.

    Rows with NaN or infinities are left out, and counted.

    Args:
        qscheme, qdtype, eps: as of every observer; it gives no grid.

    Attributes:
        gram: float64 ``[K, K]``; empty before the first batch.
        count: rows that were summed.
        left_out: rows that were not.
    """

    _state: tuple[str, ...] = ("gram", "count", "left_out")

    def __init__(
        self,
        qscheme: QScheme = per_tensor_affine,
        qdtype: QDtype = quint8,
        eps: float = DEFAULT_EPS,
    ) -> None:
        super().__init__(qscheme, qdtype, None, eps)

    def reset(self) -> None:
        """Forget everything seen."""
        self.gram: NDArray[np.float64] = np.zeros((0, 0))
        self.count, self.left_out = np.asarray(0, np.int64), np.asarray(0, np.int64)

    def forward(self, x: ArrayLike) -> ArrayLike:
        """Add a batch ``[..., K]``.

        Raises:
            ValueError: no axis, or another K than before.
        """
        array: NDArray[Any] = np.asarray(x)
        k = array.shape[-1] if array.ndim else 0
        if not array.ndim or (self.gram.size and k != len(self.gram)):
            expected = f"{len(self.gram)} values, as before" if self.gram.size else "an axis"
            raise ValueError(f"x has shape {array.shape}, expected {expected} along the last axis")
        if not self.gram.size:
            self.gram = np.zeros((k, k))
        rows = array.reshape(-1, k)
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS].astype(np.float64)
            finite: NDArray[np.bool_] = np.asarray(np.isfinite(part).all(axis=1))
            part = part if finite.all() else part[finite]
            self.gram += part.T @ part
            self.count = self.count + len(part)
            self.left_out = self.left_out + (len(finite) - len(part))
        return x

    def _merge(self, other: Self) -> None:
        if self.gram.size and other.gram.size and self.gram.shape != other.gram.shape:
            raise ValueError(
                f"{type(self).__name__}s over {len(self.gram)} and {len(other.gram)} values cannot"
                " merge"
            )
        self.gram = self.gram + other.gram if self.gram.size and other.gram.size else (
            self.gram if self.gram.size else other.gram.copy()
        )  # fmt: skip
        self.count, self.left_out = self.count + other.count, self.left_out + other.left_out
