"""The affine map between real values and codes: ``code = clip(rint(x / s) + z)``.

Source: the affine specification, section 4. Division, rounding, the addition of the zero point
and the clip happen in float32, the cast to the storage type comes last. Ties go to even, before
the zero point is added, as in ONNX QuantizeLinear.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.dtypes import QDtype
from lucid_fx.quantization.qparams import QParams


def quantize(
    x: ArrayLike,
    scale: ArrayLike | QParams,
    zero_point: ArrayLike | None = None,
    qdtype: QDtype | None = None,
    ch_axis: int | None = None,
) -> NDArray[np.generic]:
    """Codes of real values.

    Args:
        x: real values, any shape.
        scale: real value of one code step, scalar or ``(C,)``; or a `QParams` with everything.
        zero_point: the code of real zero, scalar or ``(C,)``.
        qdtype: the grid.
        ch_axis: the axis of ``x`` that a ``(C,)`` scale runs along; negative counts from the end.

    Returns:
        Codes of shape ``x.shape`` in ``qdtype``'s storage type; infinities saturate.

    Raises:
        ValueError: NaN in ``x``, a scale that is not positive and finite, a wrong length.
        IndexError: ``ch_axis`` out of range.
    """
    if isinstance(scale, QParams):
        return quantize(x, scale.scale, scale.zero_point, scale.qdtype, scale.ch_axis)
    if qdtype is None or zero_point is None:
        raise ValueError("quantize needs zero_point and qdtype, or a QParams in place of scale")
    x = np.asarray(x, np.float32)
    if np.isnan(x).any():
        raise ValueError("x holds NaN, which has no code; remove it or clip it first")
    step, zero = _aligned(x.ndim, x.shape, scale, zero_point, ch_axis)
    with np.errstate(over="ignore"):
        rounded = np.rint(x / step) + zero
    # float32 cannot hold 2**31 - 1: wide grids are clipped in float64
    wide = rounded.astype(np.float64) if qdtype.bits > 24 else rounded
    return np.clip(wide, qdtype.quant_min, qdtype.quant_max).astype(qdtype.numpy_dtype)


def dequantize(
    q: ArrayLike,
    scale: ArrayLike | QParams,
    zero_point: ArrayLike | None = None,
    ch_axis: int | None = None,
) -> NDArray[np.float32]:
    """Real values of codes: ``(float32(q) - z) * s``; arguments as for `quantize`."""
    if isinstance(scale, QParams):
        return dequantize(q, scale.scale, scale.zero_point, scale.ch_axis)
    if zero_point is None:
        raise ValueError("dequantize needs zero_point, or a QParams in place of scale")
    codes = np.asarray(q).astype(np.float32)
    step, zero = _aligned(codes.ndim, codes.shape, scale, zero_point, ch_axis)
    return np.asarray((codes - zero) * step, np.float32)


def _aligned(
    ndim: int,
    shape: tuple[int, ...],
    scale: ArrayLike,
    zero_point: ArrayLike,
    ch_axis: int | None,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and zero point in float32, reshaped to broadcast along ``ch_axis``."""
    step, zero = np.asarray(scale, np.float32), np.asarray(zero_point, np.float32)
    if not (np.isfinite(step).all() and (step > 0).all()):
        raise ValueError(f"scale must be positive and finite, got {step.min()} .. {step.max()}")
    if step.ndim == 0 or ch_axis is None:
        return step, zero
    if not -ndim <= ch_axis < ndim:
        raise IndexError(f"ch_axis {ch_axis} is out of range for {ndim} dimensions")
    for name, value in (("scale", step), ("zero_point", zero)):
        if value.ndim and value.shape != (shape[ch_axis],):
            raise ValueError(
                f"{name} has shape {value.shape}, expected ({shape[ch_axis]},) for axis {ch_axis}"
            )
    along = [1] * ndim
    along[ch_axis] = -1
    return step.reshape(along), zero.reshape(along) if zero.ndim else zero
