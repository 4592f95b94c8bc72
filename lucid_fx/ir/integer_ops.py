"""What each integer operator computes, in plain numpy: the definition that kernels are held to.

Sums are exact (64-bit integers, or float64 below 2**53); going back to codes is one
multiplication in float32, rounded with ties to even, then the zero point, then saturation.
Arguments come in the order of the operators' inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Index = tuple[Any, ...]


def requantize(total: Array, factor: Any, zero_point: Array) -> Array:
    """Codes of exact sums whose step is ``factor`` output steps."""
    scaled = np.rint(total.astype(np.float32) * np.asarray(factor, np.float32))
    limits = np.iinfo(zero_point.dtype)
    moved = scaled.astype(np.float64) + zero_point.reshape(-1)[0]
    return np.asarray(np.clip(moved, limits.min, limits.max), zero_point.dtype)


def encode(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int = 1) -> Array:
    """QuantizeLinear."""
    zero = np.zeros(np.shape(scale), np.uint8) if zero_point is None else zero_point
    limits = np.iinfo(zero.dtype)
    rounded = np.rint(x / _along(scale, x.ndim, axis)) + _along(zero, x.ndim, axis)
    return np.asarray(np.clip(rounded, limits.min, limits.max), zero.dtype)


def decode(q: Array, scale: Array, zero_point: Array | None = None, *, axis: int = 1) -> Array:
    """DequantizeLinear."""
    zero = np.zeros_like(scale, q.dtype) if zero_point is None else zero_point
    centred = q.astype(np.int64) - _along(zero, q.ndim, axis).astype(np.int64)
    return np.asarray(centred.astype(np.float32) * _along(scale, q.ndim, axis), np.float32)


def add(
    a: Array, sa: Array, za: Array, b: Array, sb: Array, zb: Array, s: Array, z: Array
) -> Array:
    """QLinearAdd."""
    total = (a.astype(np.float32) - za) * np.float32(sa / s)
    total = total + (b.astype(np.float32) - zb) * np.float32(sb / s)
    return requantize(total, np.float32(1), z)


def multiply(
    a: Array, sa: Array, za: Array, b: Array, sb: Array, zb: Array, s: Array, z: Array
) -> Array:
    """QLinearMul."""
    return requantize(_centred(a, za) * _centred(b, zb), np.float32(sa * sb) / s, z)


def concat(s: Array, z: Array, *parts: Array, axis: int) -> Array:
    """QLinearConcat: each part is read from its own grid."""
    triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return np.concatenate([encode(decode(x, sx, zx), s, z) for x, sx, zx in triples], axis)


def where(
    condition: Array, x: Array, sx: Array, zx: Array, y: Array, sy: Array, zy: Array,
    s: Array, z: Array,
) -> Array:  # fmt: skip
    """QLinearWhere."""
    return encode(np.where(condition, decode(x, sx, zx), decode(y, sy, zy)), s, z)


def curve(function: Callable[[Array], Array]) -> Callable[..., Array]:
    """A function of one operand, applied to each code's real value."""

    def apply(x: Array, sx: Array, zx: Array | None, s: Array, z: Array) -> Array:
        return encode(np.asarray(function(decode(x, sx, zx)), np.float32), s, z)

    return apply


def leaky_relu(x: Array, sx: Array, zx: Array, s: Array, z: Array, *, alpha: float = 0.01) -> Array:
    """QLinearLeakyRelu."""
    return curve(lambda v: np.where(v >= 0, v, v * np.float32(alpha)))(x, sx, zx, s, z)


def sigmoid(x: Array, sx: Array, zx: Array, s: Array, z: Array) -> Array:
    """QLinearSigmoid."""
    return curve(lambda v: 1 / (1 + np.exp(-v.astype(np.float64))))(x, sx, zx, s, z)


def matmul(
    a: Array, sa: Array, za: Array, b: Array, sb: Array, zb: Array, s: Array, z: Array
) -> Array:
    """QLinearMatMul; the weight's grid may differ by column."""
    return requantize(_product(a, za, b, zb), sa * sb / s, z)


def gemm(
    a: Array, sa: Array, za: Array, b: Array, sb: Array, zb: Array, c: Array | None = None,
    s: Array | None = None, z: Array | None = None,
    *, alpha: float = 1.0, transA: int = 0, transB: int = 0,
) -> Array:  # fmt: skip
    """QGemm: codes, or real values where no output grid is given."""
    total = _product(a.T if transA else a, za, b.T if transB else b, zb)
    total = total if c is None else total + c
    step = np.float32(alpha) * sa * sb
    if s is None or z is None:
        return np.asarray(total.astype(np.float32) * step, np.float32)
    return requantize(total, step / s, z)


def matmul_to_float(
    a: Array, b: Array, sa: Array, sb: Array, za: Array | None = None, zb: Array | None = None,
    bias: Array | None = None,
) -> Array:  # fmt: skip
    """MatMulIntegerToFloat."""
    real = _product(a, za, b, zb).astype(np.float32) * (sa * sb)
    return np.asarray(real if bias is None else real + bias, np.float32)


def dynamic_grid(x: Array) -> tuple[Array, Array]:
    """Scale and zero point that DynamicQuantizeLinear takes for a tensor."""
    low, high = min(np.float32(0), x.min(initial=0)), max(np.float32(0), x.max(initial=0))
    scale = np.float32(high - low) / np.float32(255)
    scale = scale if scale > 0 else np.float32(1)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return np.asarray(scale, np.float32), np.asarray(zero, np.uint8)


def dynamic_matmul(
    a: Array, b: Array, sb: Array, zb: Array | None = None, bias: Array | None = None
) -> Array:
    """DynamicQuantizeMatMul."""
    scale, zero = dynamic_grid(a)
    return matmul_to_float(encode(a, scale, zero), b, scale, sb, zero, zb, bias)


def conv(
    x: Array, sx: Array, zx: Array, w: Array, sw: Array, zw: Array, s: Array, z: Array,
    bias: Array | None = None, *, group: int = 1, channels_last: int = 0, **window: Any,
) -> Array:  # fmt: skip
    """QLinearConv; the padding is real zero."""
    image = _first(x, channels_last).astype(np.int64) - int(zx)
    kernel = w.astype(np.int64) - _along(np.asarray(zw, np.int64), w.ndim, 0)
    window["kernel_shape"] = list(w.shape[2:])
    cells, space = _cells(image, 0, window)
    out = np.zeros((len(x), len(w), *space), np.int64)
    inner, outer = w.shape[1], len(w) // group
    for at, patch in cells:
        for g in range(group):
            rows, columns = slice(g * outer, (g + 1) * outer), slice(g * inner, (g + 1) * inner)
            cell: Index = (rows, slice(None), *at)
            weight = kernel[cell].astype(np.float64)
            part = np.tensordot(patch[:, columns].astype(np.float64), weight, ([1], [1]))
            out[:, rows] += np.moveaxis(part, -1, 1).astype(np.int64)
    if bias is not None:
        out += _along(bias.astype(np.int64), out.ndim, 1)
    factor = _along(np.asarray(sx * sw / s, np.float32), out.ndim, 1)
    return _last(requantize(out, factor, z), channels_last)


def max_pool(x: Array, *, channels_last: int = 0, **window: Any) -> Array:
    """MaxPool; the padding never wins."""
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    image = _first(x, channels_last)
    cells, space = _cells(image, lowest, window)
    out = np.full((*image.shape[:2], *space), lowest, x.dtype)
    for _, patch in cells:
        out = np.maximum(out, patch)
    return _last(out, channels_last)


def average_pool(
    x: Array, sx: Array, zx: Array, s: Array, z: Array,
    *, count_include_pad: int = 0, channels_last: int = 0, **window: Any,
) -> Array:  # fmt: skip
    """QLinearAveragePool."""
    image = _first(x, channels_last).astype(np.int64) - int(zx)
    cells, space = _cells(image, 0, window)
    inside, _ = _cells(np.ones_like(image), int(bool(count_include_pad)), window)
    total = np.zeros((*image.shape[:2], *space), np.int64)
    count = np.zeros_like(total)
    for (_, patch), (_, here) in zip(cells, inside, strict=True):
        total, count = total + patch, count + here
    real = total.astype(np.float32) * np.float32(sx) / count.astype(np.float32)
    return _last(encode(np.asarray(real, np.float32), s, z), channels_last)


def global_average_pool(
    x: Array, sx: Array, zx: Array, s: Array, z: Array, *, channels_last: int = 0
) -> Array:
    """QLinearGlobalAveragePool."""
    image = _first(x, channels_last)
    axes = tuple(range(2, image.ndim))
    count = int(np.prod(image.shape[2:]))
    total = _centred(image, zx).sum(axis=axes, keepdims=True)
    factor = np.float32(sx) / np.float32(s * np.float32(count))
    return _last(requantize(total, factor, z), channels_last)


def _cells(
    image: Array, fill: float, window: dict[str, Any]
) -> tuple[list[tuple[tuple[int, ...], Array]], tuple[int, ...]]:
    """For each cell of the kernel the pixels that it meets, and the size of the output."""
    kernel, dims = list(window["kernel_shape"]), image.ndim - 2
    strides = list(window.get("strides") or [1] * dims)
    dilations = list(window.get("dilations") or [1] * dims)
    pads = _pads(image.shape[2:], kernel, strides, dilations, window)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    space, width = [], [(0, 0), (0, 0)]
    for at in range(dims):
        begin, end = pads[at], pads[dims + at]
        room = image.shape[2 + at] + begin + end - reach[at]
        size = (-(-room // strides[at]) if window.get("ceil_mode") else room // strides[at]) + 1
        if window.get("ceil_mode") and (size - 1) * strides[at] >= image.shape[2 + at] + begin:
            size -= 1  # a window that starts in the padding does not count
        space.append(size)
        width.append((begin, max(end, (size - 1) * strides[at] + reach[at]
                                 - begin - image.shape[2 + at])))  # fmt: skip
    padded = np.pad(image, width, constant_values=fill)
    found = []
    for cell in product(*map(range, kernel)):
        starts = [a * d for a, d in zip(cell, dilations, strict=True)]
        cut = [slice(b, b + (n - 1) * t + 1, t)
               for b, n, t in zip(starts, space, strides, strict=True)]  # fmt: skip
        index: Index = (slice(None), slice(None), *cut)
        found.append((cell, padded[index]))
    return found, tuple(space)


def _pads(
    size: Sequence[int], kernel: list[int], strides: list[int], dilations: list[int],
    window: dict[str, Any],
) -> list[int]:  # fmt: skip
    auto = window.get("auto_pad") or "NOTSET"
    if auto == "NOTSET":
        return list(window.get("pads") or [0] * (2 * len(kernel)))
    if auto == "VALID":
        return [0] * (2 * len(kernel))
    begins, ends = [], []
    for n, k, t, d in zip(size, kernel, strides, dilations, strict=True):
        room = max((-(-n // t) - 1) * t + (k - 1) * d + 1 - n, 0)
        small, large = room // 2, room - room // 2
        begins.append(small if auto == "SAME_UPPER" else large)
        ends.append(large if auto == "SAME_UPPER" else small)
    return begins + ends


def _product(a: Array, za: Array | None, b: Array, zb: Array | None) -> Array:
    return np.asarray(_centred(a, za).astype(np.float64) @ _centred(b, zb), np.float64).astype(
        np.int64
    )


def _centred(codes: Array, zero_point: Array | None) -> Array:
    zero = np.int64(0) if zero_point is None else np.asarray(zero_point).astype(np.int64)
    return np.asarray(codes.astype(np.int64) - zero)


def _along(value: Array, ndim: int, axis: int) -> Array:
    """A grid for one axis, shaped to broadcast."""
    value = np.asarray(value)
    if value.size == 1:
        return value.reshape(())
    shape = [1] * ndim
    shape[axis] = -1
    return value.reshape(shape)


def _first(x: Array, channels_last: int) -> Array:
    return np.moveaxis(x, -1, 1) if channels_last else x


def _last(x: Array, channels_last: int) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if channels_last else x
