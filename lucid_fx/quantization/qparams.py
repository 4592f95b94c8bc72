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

from lucid_fx.quantization.arrays import as_float32
from lucid_fx.quantization.dtypes import QDtype, QScheme

DEFAULT_EPS = 1e-8
"""Smallest scale (real value of one code step) that a range may give."""


@dataclass(frozen=True, eq=False)
class QParams:
    """Everything that defines the grid of a quantized tensor (section 3); compares by value.

    Takes the place of scale and all that follows in `quantize`, `dequantize` and `fake_quantize`.

    Attributes:
        scale: real value of one code step, float32, shape ``()`` or ``(C,)``; read-only.
        zero_point: the code of real zero, integer-valued float32, shape of ``scale``; read-only.
        qscheme, qdtype: how the grid was derived, and its codes.
        ch_axis: the axis that a ``(C,)`` scale runs along; None per tensor.

    Raises:
        ValueError: the shapes of scale and zero point differ, or a zero point is no integer.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.float32]
    qscheme: QScheme
    qdtype: QDtype
    ch_axis: int | None = None

    def __post_init__(self) -> None:
        scale = np.array(as_float32(self.scale))
        zero_point = as_float32(self.zero_point) + np.float32(0)  # a code has no negative zero
        if scale.shape != zero_point.shape:
            raise ValueError(
                f"zero_point has shape {zero_point.shape}, expected scale's {scale.shape}"
            )
        if not np.array_equal(zero_point, np.rint(zero_point)):
            raise ValueError(f"zero_point of shape {zero_point.shape} is no integer: {zero_point}")
        for name, value in (("scale", scale), ("zero_point", np.asarray(zero_point))):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

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
        bounds = self.qdtype.quant_min, self.qdtype.quant_max
        # float32 cannot hold 2**31 - 1
        codes = np.clip(self.zero_point.astype(np.float64), *bounds)
        return np.asarray(codes, self.qdtype.numpy_dtype)

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
            as_float32(fields["scale"]),
            as_float32(fields["zero_point"]),
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
    """The scale and zero point of a range, first widened to hold zero (section 3).

    Args:
        min_val, max_val: real values, scalar or ``(C,)``; the result has their shape. A range
            that holds nothing but zero after widening, an inverted one included, has no width.
        qscheme: only its symmetry is read; granularity follows from the shapes.
        qdtype: the grid.
        eps: the smallest scale; one of no width gets it.

    Returns:
        Scale (real value of one code step) and zero point (code of real zero, integer-valued),
        float32 each.

    Raises:
        ValueError: NaN, an infinite end, or shapes that do not fit each other.
    """
    low, high = as_float32(min_val), as_float32(max_val)
    if low.shape != high.shape and low.ndim and high.ndim:
        raise ValueError(f"max_val has shape {high.shape}, expected that of min_val, {low.shape}")
    low, high = np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0))
    for name, end in (("min_val", low), ("max_val", high)):
        if not np.isfinite(end).all():
            bad = end[~np.isfinite(end)].flat[0]
            raise ValueError(
                f"{name} of shape {end.shape} holds {bad}, expected finite numbers; remove NaN and"
                " infinities from the data"
            )
    qmin, qmax = np.float32(qdtype.quant_min), np.float32(qdtype.quant_max)
    if qscheme.is_symmetric:
        half = np.float32((qdtype.quant_max - qdtype.quant_min) / 2)
        scale = _floored(np.maximum(np.abs(low), np.abs(high)) / half, eps)
        return scale, np.full_like(scale, qdtype.middle)
    with np.errstate(over="ignore"):
        step = (high - low) / (qmax - qmin)
    # two finite ends can be further apart than float32 reaches
    exact = (high.astype(np.float64) - low) / np.float64(qmax - qmin)
    scale = _floored(np.where(np.isinf(step), exact, step), eps)
    with np.errstate(over="ignore"):
        return scale, as_float32(np.clip(qmin - np.rint(low / scale), qmin, qmax))


def _floored(step: NDArray[np.floating[Any]], eps: float) -> NDArray[np.float32]:
    scale = as_float32(np.maximum(step.astype(np.float32), np.float32(eps)))
    if not (scale > 0).all():
        raise ValueError(f"eps is {eps}, expected a positive number, for ranges of no width")
    return scale
