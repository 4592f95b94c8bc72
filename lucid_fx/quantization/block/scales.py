"""The formats that scales are stored in: rounding up to them, their bytes, their limits.

Source: the block-scaled specification, section 7. A scale is the real value of one code step, so
it is never negative; it is rounded *up*, because a smaller one would clip the largest element.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

QPARAM_ALIGN = 4
"""Alignment in bytes of the allocation that holds scales; no padding is put between regions."""

SMALLEST_SCALE = np.float32(2.0**-126)
"""The real value that takes the place of a scale of zero before it is rounded to its dtype."""


class _Format(NamedTuple):
    size: int  # bytes
    largest: float
    numpy: Any
    smallest_normal: float = 0.0  # below, values are multiples of step
    step: float = 0.0
    dropped: int = 0  # bits of float32's mantissa that the format lacks


_FORMATS = {
    "F32": _Format(4, float(np.finfo(np.float32).max), np.dtype("<f4")),
    "F16": _Format(2, 65504.0, np.dtype("<f2"), 2.0**-14, 2.0**-24, 13),
    # The exponents of bfloat16 are those of float32, so dropping bits covers its subnormals too.
    "BF16": _Format(2, float.fromhex("0x1.fep127"), ml_dtypes.bfloat16, dropped=16),
    "UE8M0": _Format(1, 2.0**127, ml_dtypes.float8_e8m0fnu),
    "UE4M3": _Format(1, 448.0, ml_dtypes.float8_e4m3fn, 2.0**-6, 2.0**-9, 20),
}


class ScaleDtype(enum.Enum):
    """The format of a stored scale (section 7).

    ``F32``, ``F16``, ``BF16``: the usual floats. ``UE4M3``: an 8-bit float whose sign is not used.
    ``UE8M0``: a bare exponent, the power of two ``2**(code - 127)``; code 255 is NaN.
    """

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    UE8M0 = "UE8M0"
    UE4M3 = "UE4M3"

    @property
    def size(self) -> int:
        """Bytes of one stored scale."""
        return _FORMATS[self.name].size

    @property
    def max_representable(self) -> np.float32:
        """The largest finite scale."""
        return np.float32(_FORMATS[self.name].largest)


def scale_size(dtype: ScaleDtype) -> int:
    """Bytes of one stored scale: 4, 2, 2, 1, 1 for F32, F16, BF16, UE8M0, UE4M3."""
    return dtype.size


def scale_to_dtype(scale: ArrayLike, dtype: ScaleDtype) -> NDArray[np.float32]:
    """The smallest value of a format that is no smaller than a scale (section 7).

    Args:
        scale: real values of a code step, any shape. NaN stays NaN.
        dtype: the format. All but F32 saturate at their largest finite value.

    Returns:
        float32 of the same shape. Zero stays zero, except in UE8M0, where it becomes 2**-127.

    Raises:
        ValueError: a scale is negative.
    """
    scales = np.asarray(scale, np.float32)
    if np.any(scales < 0):
        raise ValueError(
            f"scale is negative ({scales[scales < 0].flat[0]:g}): a scale is the real value of one"
            " code step; give its magnitude"
        )
    if dtype is ScaleDtype.F32:
        return scales
    form = _FORMATS[dtype.name]
    up = _next_power_of_two(scales) if dtype is ScaleDtype.UE8M0 else _round_up(scales, form)
    up = np.where(scales >= np.float32(form.largest), np.float32(form.largest), up)
    return np.asarray(np.where(np.isnan(scales), scales, up), np.float32)


def encode_scales(scales: ArrayLike, dtype: ScaleDtype) -> bytes:
    """The bytes of scales, little endian, row-major.

    Rounds to the *nearest* value of the format (UE8M0: up), so it is exact behind `scale_to_dtype`
    only; UE4M3 saturates at 448.
    """
    values = np.asarray(scales, np.float32)
    if dtype is ScaleDtype.UE8M0:
        values = scale_to_dtype(values, dtype)
    elif dtype is ScaleDtype.UE4M3:
        values = np.minimum(values, dtype.max_representable)
    with np.errstate(over="ignore"):
        return bytes(values.astype(_FORMATS[dtype.name].numpy).tobytes())


def decode_scales(data: Any, dtype: ScaleDtype) -> NDArray[np.float32]:
    """Read what `encode_scales` wrote.

    Args:
        data: bytes, or anything with a buffer of bytes.
        dtype: the format.

    Returns:
        float32, shape ``(len(data) // dtype.size,)``.
    """
    return np.frombuffer(data, _FORMATS[dtype.name].numpy).astype(np.float32)


def _round_up(scales: NDArray[np.float32], form: _Format) -> NDArray[np.float32]:
    ulp = np.uint32(1 << form.dropped)
    with np.errstate(over="ignore", invalid="ignore"):
        up = ((scales.view(np.uint32) + (ulp - np.uint32(1))) & ~(ulp - np.uint32(1))).view("<f4")
        if not form.step:
            return np.asarray(up)
        step = np.float32(form.step)
        return np.where(
            scales < np.float32(form.smallest_normal), np.ceil(scales / step) * step, up
        )


def _next_power_of_two(scales: NDArray[np.float32]) -> NDArray[np.float32]:
    mantissa, exponent = np.frexp(scales)
    exponent = np.where(mantissa == 0.5, exponent - 1, exponent)
    exponent = np.where(scales == 0, -127, np.clip(exponent, -127, 127))
    return np.ldexp(np.float32(1), exponent).astype(np.float32)
