"""The affine map between real values and codes: ``code = clip(rint(x / s) + z)``.

Source: the affine specification, section 4. Division, rounding, the addition of the zero point
and the clip happen in float32, the cast to the storage type comes last. Ties go to even, before
the zero point is added, as in ONNX QuantizeLinear.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.arrays import as_float32, as_numpy
from lucid_fx.quantization.dtypes import QDtype
from lucid_fx.quantization.qparams import QParams

Floats = NDArray[np.float32]


def quantize(
    x: ArrayLike,
    scale: ArrayLike | QParams,
    zero_point: ArrayLike | None = None,
    qdtype: QDtype | None = None,
    ch_axis: int | None = None,
) -> NDArray[np.generic]:
    """Codes of real values (affine specification, section 4).

    Args:
        x: real values, any shape.
        scale: real value of one code step, positive, scalar or ``(C,)``; or a `QParams`, which
            holds the other arguments too.
        zero_point: the code of real zero, scalar or ``(C,)``.
        qdtype: the grid.
        ch_axis: the axis of ``x`` that a ``(C,)`` scale runs along; negative counts from the end.
            None: vectors broadcast along the last axis.

    Returns:
        Codes of shape ``x.shape`` in ``qdtype``'s storage type. What lies outside the grid takes
        the nearest code, infinities included.

    Raises:
        ValueError: NaN in ``x``, a scale that is not positive and finite, a wrong length.
        IndexError: ``ch_axis`` out of range.
    """
    if isinstance(scale, QParams):
        return quantize(x, scale.scale, scale.zero_point, scale.qdtype, scale.ch_axis)
    if qdtype is None or zero_point is None:
        raise ValueError("quantize needs zero_point and qdtype, or a QParams in place of scale")
    real = as_float32(x)
    if np.isnan(real).any():
        raise ValueError(
            f"x of shape {real.shape} holds {np.isnan(real).sum()} NaN, which have no code;"
            " remove or replace them first"
        )
    step, zero = _aligned(real.shape, scale, zero_point, ch_axis)
    codes = _unclipped(real, step, zero)
    # float32 cannot hold 2**31 - 1: wide grids are clipped in float64
    wide = codes.astype(np.float64) if qdtype.bits > 24 else codes
    return np.asarray(np.clip(wide, qdtype.quant_min, qdtype.quant_max), qdtype.numpy_dtype)


def dequantize(
    q: ArrayLike,
    scale: ArrayLike | QParams,
    zero_point: ArrayLike | None = None,
    ch_axis: int | None = None,
) -> Floats:
    """Real values of codes: ``(float32(q) - z) * s`` (affine specification, section 4).

    Args:
        q: codes, any shape; from 2**24 on, float32 rounds them.
        scale, zero_point, ch_axis: as for `quantize`.

    Returns:
        Real values, float32, of shape ``q.shape``.

    Raises:
        ValueError, IndexError: as `quantize`.
    """
    if isinstance(scale, QParams):
        return dequantize(q, scale.scale, scale.zero_point, scale.ch_axis)
    if zero_point is None:
        raise ValueError("dequantize needs zero_point, or a QParams in place of scale")
    codes = as_numpy(q).astype(np.float32)
    step, zero = _aligned(codes.shape, scale, zero_point, ch_axis)
    return _real(codes, step, zero)


def fake_quantize(
    x: ArrayLike,
    scale: ArrayLike | QParams,
    zero_point: ArrayLike | None = None,
    quant_min: int | None = None,
    quant_max: int | None = None,
    ch_axis: int | None = None,
) -> Floats:
    """Real values moved onto the grid: quantize and dequantize in one (section 4).

    Args:
        x: real values, any shape; NaN stays NaN.
        scale, zero_point, ch_axis: as for `quantize`; a `QParams` holds the bounds too.
        quant_min, quant_max: smallest and largest code.

    Returns:
        Real values, float32, of shape ``x.shape``.

    Raises:
        ValueError, IndexError: as `quantize`, except for NaN in ``x``.
    """
    real = as_float32(x)
    step, zero, low, high = _bounded(real.shape, scale, zero_point, quant_min, quant_max, ch_axis)
    return _real(np.clip(_unclipped(real, step, zero), low, high), step, zero)


def fake_quantize_backward(
    dy: ArrayLike,
    x: ArrayLike,
    scale: ArrayLike | QParams,
    zero_point: ArrayLike | None = None,
    quant_min: int | None = None,
    quant_max: int | None = None,
    ch_axis: int | None = None,
) -> Floats:
    """Gradient of a loss by ``x``, from that by ``fake_quantize(x, …)`` (section 4).

    Straight through: ``dy`` where the rounded code, before clipping, lies in ``quant_min ..
    quant_max`` (both included), else 0. Scale and zero point are constants. A value just outside
    the real range of the grid whose code still rounds to its edge keeps its gradient.

    Args:
        dy: gradient by the result, shape of ``x``.
        x, scale, zero_point, quant_min, quant_max, ch_axis: as they were for `fake_quantize`.

    Returns:
        Gradient by ``x``, float32, of shape ``x.shape``; 0 where ``x`` is NaN.
    """
    real, given = as_float32(x), as_float32(dy)
    if given.shape != real.shape:
        raise ValueError(f"dy has shape {given.shape}, expected that of x, {real.shape}")
    step, zero, low, high = _bounded(real.shape, scale, zero_point, quant_min, quant_max, ch_axis)
    codes = _unclipped(real, step, zero)
    return np.where((codes >= low) & (codes <= high), given, np.float32(0))


def _unclipped(real: Floats, step: Floats, zero: Floats) -> Floats:
    """``rint(x / s) + z`` in float32; huge quotients become infinite and saturate later."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.rint(real / step) + zero, np.float32)


def _real(codes: Floats, step: Floats, zero: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray((codes - zero) * step, np.float32)


def _bounded(
    shape: tuple[int, ...],
    scale: ArrayLike | QParams,
    zero_point: ArrayLike | None,
    quant_min: int | None,
    quant_max: int | None,
    ch_axis: int | None,
) -> tuple[Floats, Floats, np.float32, np.float32]:
    """Scale and zero point as `_aligned` gives them, and the bounds of the codes."""
    if isinstance(scale, QParams):
        bounds = (scale.qdtype.quant_min, scale.qdtype.quant_max)
        return _bounded(shape, scale.scale, scale.zero_point, *bounds, scale.ch_axis)
    if zero_point is None or quant_min is None or quant_max is None:
        raise ValueError(
            "fake_quantize needs zero_point, quant_min and quant_max, or a QParams as scale"
        )
    if quant_min > quant_max:
        raise ValueError(f"quant_min is {quant_min}, expected at most quant_max, {quant_max}")
    aligned = _aligned(shape, scale, zero_point, ch_axis)
    return *aligned, np.float32(quant_min), np.float32(quant_max)


def _aligned(
    shape: tuple[int, ...], scale: ArrayLike, zero_point: ArrayLike, ch_axis: int | None
) -> tuple[Floats, Floats]:
    """Scale and zero point in float32, reshaped to broadcast against ``shape``."""
    step, zero = as_float32(scale), as_float32(zero_point)
    if not (np.isfinite(step).all() and (step > 0).all()):
        bad = step[~(np.isfinite(step) & (step > 0))].flat[0]
        raise ValueError(
            f"scale of shape {step.shape} holds {bad}, expected positive finite numbers"
        )
    if not np.isfinite(zero).all():
        raise ValueError(f"zero_point of shape {zero.shape} is not finite, expected codes")
    axis = ch_axis if step.ndim else None  # a single scale has no channels
    return _along("scale", step, shape, axis), _along("zero_point", zero, shape, axis)


def _along(name: str, value: Floats, shape: tuple[int, ...], axis: int | None) -> Floats:
    """A vector laid along an axis of ``shape``; without an axis, along the last one."""
    rank = len(shape)
    if axis is not None and not -rank <= axis < rank:
        raise IndexError(
            f"ch_axis is {axis}, expected {-rank} .. {rank - 1} for an input of shape {shape}"
        )
    if axis is None or value.ndim == 0:
        try:
            fits = np.broadcast_shapes(value.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            expected = f"() or ({shape[-1]},)" if shape else "()"
            raise ValueError(
                f"{name} has shape {value.shape}, expected {expected} for an input of shape {shape}"
            )
        return value
    if value.shape not in {(shape[axis],), (1,)}:
        raise ValueError(
            f"{name} has shape {value.shape}, expected ({shape[axis]},) for axis {axis} of an"
            f" input of shape {shape}"
        )
    along = [1] * rank
    along[axis] = -1
    return value.reshape(along)
