"""From a range of real values to a grid: `calculate_qparams` and the value object `QParams`.

Source: the affine specification, section 3. Every step is rounded to float32, on purpose: the
quotient ``-1 / s`` for [-1, 1] on quint8 is -127.49999 in float32, so the zero point is 127.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.dtypes import QDtype, QScheme

DEFAULT_EPS = 1e-8
"""Smallest scale (real value of one code step) that a range may give."""


@dataclass(frozen=True, eq=False)
class QParams:
    """Everything that defines the grid of a quantized tensor; compares by value.

    Attributes:
        scale: real value of one code step, float32, shape ``()`` or ``(C,)``.
        zero_point: the code of real zero, integer-valued float32, shape of ``scale``.
        qscheme, qdtype: how the grid was derived, and its codes.
        ch_axis: the axis that a ``(C,)`` scale runs along; None per tensor.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.float32]
    qscheme: QScheme
    qdtype: QDtype
    ch_axis: int | None = None

    def __post_init__(self) -> None:
        scale, zero_point = _float32(self.scale), _float32(self.zero_point)
        if scale.shape != zero_point.shape:
            raise ValueError(
                f"zero_point has shape {zero_point.shape}, expected scale's {scale.shape}"
            )
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "zero_point", zero_point)

    def _key(self) -> tuple[Any, ...]:
        numbers = (self.scale.shape, self.scale.tobytes(), self.zero_point.tobytes())
        return (*numbers, self.qscheme, self.qdtype, self.ch_axis)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QParams) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def range(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The real values of the smallest and the largest code."""
        low = (np.float32(self.qdtype.quant_min) - self.zero_point) * self.scale
        high = (np.float32(self.qdtype.quant_max) - self.zero_point) * self.scale
        return np.asarray(low, np.float32), np.asarray(high, np.float32)

    def zero_point_codes(self) -> NDArray[np.generic]:
        """The zero point in the integer type of the codes, as ONNX stores it."""
        return self.zero_point.astype(self.qdtype.numpy_dtype)

    def to_json(self) -> str:
        """A JSON text that `from_json` reads back to an equal object."""
        return json.dumps(
            {
                "scale": self.scale.tolist(),
                "zero_point": self.zero_point.tolist(),
                "qscheme": self.qscheme.value,
                "qdtype": vars(self.qdtype),
                "ch_axis": self.ch_axis,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> QParams:
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        return cls(
            _float32(fields["scale"]),
            _float32(fields["zero_point"]),
            QScheme(fields["qscheme"]),
            QDtype(**fields["qdtype"]),
            fields["ch_axis"],
        )


def calculate_qparams(
    min_val: ArrayLike,
    max_val: ArrayLike,
    qscheme: QScheme,
    qdtype: QDtype,
    eps: float = DEFAULT_EPS,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The scale and zero point of a range that is first widened to hold zero.

    Args:
        min_val, max_val: real values, scalar or ``(C,)``; the result has their shape.
        qscheme: only its symmetry is read; granularity follows from the shapes.
        qdtype: the grid.
        eps: the smallest scale.

    Returns:
        scale and zero point, float32; the zero point is integer-valued.
    """
    low = np.minimum(_float32(min_val), np.float32(0))
    high = np.maximum(_float32(max_val), np.float32(0))
    qmin, qmax = np.float32(qdtype.quant_min), np.float32(qdtype.quant_max)
    with np.errstate(invalid="ignore", over="ignore"):
        if qscheme.is_symmetric:
            half = np.float32((qdtype.quant_max - qdtype.quant_min) / 2)
            reach = np.maximum(np.abs(low), np.abs(high))
            scale = np.maximum(reach / half, np.float32(eps))
            middle = 0 if qdtype.signed else (qdtype.quant_max + qdtype.quant_min + 1) // 2
            return _float32(scale), np.full_like(scale, middle)
        scale = np.maximum((high - low) / (qmax - qmin), np.float32(eps))
        zero_point = np.clip(qmin - np.rint(low / scale), qmin, qmax)
    return _float32(scale), _float32(zero_point)


def _float32(value: ArrayLike) -> NDArray[np.float32]:
    return np.asarray(value, dtype=np.float32)
