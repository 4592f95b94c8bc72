"""Operations on quantized tensors, and what they give: `propagate`, layout operations, products.

Source: the block-scaled specification, section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.block.arithmetic import (
    QuantizedTensor,
    Scales,
    dequantize,
    quantize_dynamic,
)
from lucid_fx.quantization.block.calibration import QParams
from lucid_fx.quantization.block.packing import pack_bytes
from lucid_fx.quantization.block.scheme import QuantScheme
from lucid_fx.quantization.block.values import QuantMode, QuantPropagation, QuantValue

Operand = QuantizedTensor | NDArray[Any] | float


def propagate(
    operation: Callable[..., NDArray[Any]],
    *operands: Operand,
    propagation: QuantPropagation = QuantPropagation.Inhibit,
) -> QuantizedTensor | NDArray[Any]:
    """Compute on the real values of quantized operands.

    Args:
        operation: of float arrays, for example ``np.add`` or ``np.matmul``.
        operands: quantized tensors, arrays and numbers, at least one quantized.
        propagation: Inhibit gives the float result; Propagate quantizes it (MinMax) with the scheme
            of the leftmost quantized operand.

    Raises:
        ValueError: no operand is quantized.
    """
    scheme = next((each.scheme for each in operands if isinstance(each, QuantizedTensor)), None)
    if scheme is None:
        raise ValueError("operands holds no quantized tensor: call the operation itself")
    real = [dequantize(each) if isinstance(each, QuantizedTensor) else each for each in operands]
    result = np.asarray(operation(*real), np.float32)
    if propagation is QuantPropagation.Inhibit:
        return result
    return quantize_dynamic(result, scheme.reshape(result.ndim))


def permute(tensor: QuantizedTensor, axes: Sequence[int]) -> QuantizedTensor:
    """The tensor with its axes permuted, exactly: blocks and the packed axis follow.

    Args:
        tensor: quantized.
        axes: new axis i is old axis ``axes[i]``.
    """
    scheme = tensor.scheme.permute(len(tensor.shape), axes)
    scales = tensor.qparams.scales
    if tensor.scheme.block is not None:
        scales = scales.transpose(axes)
    params = QParams(scales, tensor.qparams.global_scale)
    return _pack(tensor.codes().transpose(axes), params, scheme)


def swap_dims(tensor: QuantizedTensor, dim0: int, dim1: int) -> QuantizedTensor:
    """The tensor with two axes exchanged."""
    axes = list(range(len(tensor.shape)))
    axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return permute(tensor, axes)


def move(
    tensor: QuantizedTensor, operation: Callable[[NDArray[Any]], NDArray[Any]]
) -> QuantizedTensor:
    """Any operation that only moves elements: reshape, slice, select, gather, flip, repeat, ...

    A tensor with one scale keeps its codes. With scales of blocks the result is dequantized, moved
    and quantized again, because elements of several blocks come together.

    Args:
        tensor: quantized.
        operation: from an array to an array of elements of it, for example
            ``lambda x: x.reshape(2, -1)``.
    """
    if tensor.scheme.block is not None:
        moved = np.asarray(operation(dequantize(tensor)))
        return quantize_dynamic(moved, tensor.scheme.reshape(moved.ndim))
    codes = np.asarray(operation(tensor.codes()))
    return _pack(codes, tensor.qparams, tensor.scheme.reshape(codes.ndim))


def argmax(tensor: QuantizedTensor, axis: int) -> NDArray[np.intp]:
    """Where the greatest elements are along an axis; found on codes where one scale orders them."""
    return np.asarray(np.argmax(_comparable(tensor), axis=axis))


def argmin(tensor: QuantizedTensor, axis: int) -> NDArray[np.intp]:
    """Where the least elements are along an axis; found on codes where one scale orders them."""
    return np.asarray(np.argmin(_comparable(tensor), axis=axis))


def ternary_matmul(a: ArrayLike, weight: QuantizedTensor) -> NDArray[np.float32]:
    """A product with ternary codes: additions and subtractions, multiplied by the scale once.

    Args:
        a: real values, ``(..., k)``.
        weight: Q2S with one scale, ``(k, n)``.

    Returns:
        float32 ``(..., n)``.

    Raises:
        ValueError: ``weight`` is not a matrix of Q2S with one scale.
    """
    scheme = weight.scheme
    if scheme.value is not QuantValue.Q2S or scheme.block is not None or len(weight.shape) != 2:
        raise ValueError("weight must be a matrix of Q2S codes with one scale for the tensor")
    codes, left = weight.codes(), np.asarray(a, np.float32)
    added, taken = (codes == 1).astype(np.float32), (codes == -1).astype(np.float32)
    return np.asarray((left @ added - left @ taken) * weight.qparams.scales[0], np.float32)


def _comparable(tensor: QuantizedTensor) -> NDArray[Any]:
    ordered = tensor.scheme.block is None and tensor.scheme.mode is QuantMode.Symmetric
    if ordered and not tensor.scheme.value.is_float:
        return tensor.codes()
    return dequantize(tensor)


def _pack(codes: NDArray[Any], params: Scales, scheme: QuantScheme) -> QuantizedTensor:
    data = pack_bytes(np.ascontiguousarray(codes).view(np.uint8), scheme.value, scheme.store)
    return QuantizedTensor(data, params, scheme, codes.shape)
