"""Grids: which integer codes there are (`QDtype`) and how a range becomes one (`QScheme`).

Source: the affine specification, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


class QScheme(Enum):
    """Granularity (per tensor, per channel) times symmetry (affine, symmetric)."""

    PER_TENSOR_AFFINE = "per_tensor_affine"
    PER_TENSOR_SYMMETRIC = "per_tensor_symmetric"
    PER_CHANNEL_AFFINE = "per_channel_affine"
    PER_CHANNEL_SYMMETRIC = "per_channel_symmetric"

    @property
    def is_per_channel(self) -> bool:
        """True when each channel has a scale of its own."""
        return self in (QScheme.PER_CHANNEL_AFFINE, QScheme.PER_CHANNEL_SYMMETRIC)

    @property
    def is_symmetric(self) -> bool:
        """True when the zero point is pinned to the middle of the grid."""
        return self in (QScheme.PER_TENSOR_SYMMETRIC, QScheme.PER_CHANNEL_SYMMETRIC)


@dataclass(frozen=True, repr=False)
class QDtype:
    """An integer grid: the codes ``quant_min .. quant_max``, kept in ``storage``.

    Attributes:
        name: the constant's name, e.g. ``"quint8"``.
        bits: width of a code.
        signed: whether negative codes exist.
        quant_min, quant_max: the smallest and largest code.
        storage: numpy dtype name of the codes in memory.
    """

    name: str
    bits: int
    signed: bool
    quant_min: int
    quant_max: int
    storage: str

    def __repr__(self) -> str:
        return f"lucid_fx.quantization.{self.name}"

    @property
    def levels(self) -> int:
        """Number of codes."""
        return self.quant_max - self.quant_min + 1

    @property
    def numpy_dtype(self) -> np.dtype[np.generic]:
        """The dtype of code arrays."""
        return np.dtype(self.storage)


per_tensor_affine = QScheme.PER_TENSOR_AFFINE
per_tensor_symmetric = QScheme.PER_TENSOR_SYMMETRIC
per_channel_affine = QScheme.PER_CHANNEL_AFFINE
per_channel_symmetric = QScheme.PER_CHANNEL_SYMMETRIC

qint8 = QDtype("qint8", 8, True, -128, 127, "int8")
quint8 = QDtype("quint8", 8, False, 0, 255, "uint8")
qint32 = QDtype("qint32", 32, True, -(2**31), 2**31 - 1, "int32")
qint4 = QDtype("qint4", 4, True, -8, 7, "int8")
