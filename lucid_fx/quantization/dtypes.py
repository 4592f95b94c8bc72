"""Grids: which integer codes there are (`QDtype`) and how a range becomes one (`QScheme`).

Source: the affine specification, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import ml_dtypes  # noqa: F401  (makes "int4" and its like names of numpy dtypes)
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

    Compares and hashes by value; make your own for grids that have no name here.

    Attributes:
        name: the constant's name, e.g. ``"quint8"``.
        bits: width of a code.
        signed: whether negative codes exist; tells where a symmetric scheme puts real zero.
        quant_min, quant_max: the smallest and largest code.
        storage: numpy dtype name of the codes in memory, also the ONNX type they are exported as.
            ``"int4"`` and its like (of ml_dtypes) take a byte a code in memory, and are packed by
            ONNX.
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
    def middle(self) -> int:
        """The code of real zero in symmetric schemes: 0 if signed, else half of the grid."""
        return 0 if self.signed else (self.quant_max + self.quant_min + 1) // 2

    @property
    def numpy_dtype(self) -> np.dtype[np.generic]:
        """The dtype of code arrays."""
        return np.dtype(self.storage)

    @property
    def signed_storage(self) -> str:
        """The narrowest signed numpy integer that holds every code: room for arithmetic."""
        kinds = (np.iinfo(name) for name in ("int8", "int16", "int32", "int64"))
        return next(
            str(kind.dtype)
            for kind in kinds
            if kind.min <= self.quant_min and self.quant_max <= kind.max
        )


per_tensor_affine = QScheme.PER_TENSOR_AFFINE
per_tensor_symmetric = QScheme.PER_TENSOR_SYMMETRIC
per_channel_affine = QScheme.PER_CHANNEL_AFFINE
per_channel_symmetric = QScheme.PER_CHANNEL_SYMMETRIC


def _signed(bits: int) -> QDtype:
    half = 2 ** (bits - 1)
    return QDtype(f"qint{bits}", bits, True, -half, half - 1, f"int{bits}")


def _unsigned(bits: int) -> QDtype:
    return QDtype(f"quint{bits}", bits, False, 0, 2**bits - 1, f"uint{bits}")


qint2, qint4, qint8, qint16, qint32 = map(_signed, (2, 4, 8, 16, 32))
quint2, quint4, quint8, quint16 = map(_unsigned, (2, 4, 8, 16))
NAMED = (qint2, qint4, qint8, qint16, qint32, quint2, quint4, quint8, quint16)
"""The grids that have a name here; each has a storage type of its own."""
