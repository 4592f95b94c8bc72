"""From a float weight and bias to codes that no kernel of the target can get wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.walk import attribute, is_op
from lucid_fx.quantization import ObserverBase, QParams, dequantize, quantize

BIAS_LIMIT = 2.0**30
"""Largest bias code: half of int32, the rest is for the sum of products."""

PAIR_LIMIT = 128
"""Largest sum of two neighbouring weight codes of one sign: 255 · 128 fits in 16 bits."""


@dataclass(frozen=True)
class QuantizedWeight:
    """Codes of a weight, its grid, the bias codes, and what had to be repaired."""

    codes: NDArray[Any]
    qparams: QParams
    bias: NDArray[np.int32] | None
    repairs: tuple[str, ...]


def quantize_weight(
    node: ir.Node,
    weight: NDArray[Any],
    axis: int,
    observer: ObserverBase,
    *,
    bias: NDArray[Any] | None = None,
    input_scale: float | None = None,
    input_mean: NDArray[Any] | None = None,
    saturates: bool = False,
) -> QuantizedWeight:
    """Quantize a weight, and its bias for a static input grid.

    Args:
        node: the Conv, Gemm or MatMul it belongs to.
        weight: real values; ``axis`` is that of the output channels.
        observer: fresh observer from the recipe.
        bias: real values, one for each output channel.
        input_scale: real value of one code step of the input; None when known at run time only.
        input_mean: mean real value of each input channel; the bias then takes up the mean error
            that rounding the weight makes.
        saturates: whether the target's u8×s8 kernel adds pairs in saturating 16 bits.
    """
    if observer.qscheme.is_per_channel:
        observer.ch_axis = axis
    observer.forward(np.asarray(weight, np.float32))
    qparams, repairs = observer.qparams(), []
    scale = np.array(np.broadcast_to(qparams.scale, _channels(qparams, weight, axis)))
    if bias is not None and input_scale is not None:
        needed = np.abs(bias.astype(np.float64)) / (input_scale * BIAS_LIMIT)
        needed = needed if scale.ndim else needed.max()
        if (needed > scale).any():
            repairs.append("weight scale raised, or the bias would overflow int32")
            scale = np.maximum(scale, needed.astype(np.float32))
    qparams = _with_scale(qparams, scale)
    codes = quantize(weight, qparams)
    if saturates and not is_depthwise(node, weight):
        codes, qparams, count = _repair_pairs(node, weight, axis, codes, qparams)
        if count:
            repairs.append(f"{count} of {weight.shape[axis]} channels got a coarser weight grid,"
                           " or this CPU's 16-bit pair sums would saturate")  # fmt: skip
    bias_codes = None
    if bias is not None and input_scale is not None:
        step = np.float32(input_scale) * qparams.scale
        if input_mean is not None:
            bias = bias + _mean_error(node, weight, dequantize(codes, qparams), axis, input_mean)
        bias_codes = np.rint(bias.astype(np.float64) / step).astype(np.int32)
    return QuantizedWeight(codes, qparams, bias_codes, tuple(repairs))


def _mean_error(
    node: ir.Node, weight: NDArray[Any], rounded: NDArray[Any], axis: int, mean: NDArray[Any]
) -> NDArray[Any]:
    """What the output loses on average, by channel: (weight - rounded) · mean input."""
    lost = np.moveaxis(np.asarray(weight - rounded, np.float64), axis, 0)
    if not is_op(node, "Conv"):
        return np.asarray(lost @ mean, np.float64)
    lost = lost.reshape(*lost.shape[:2], -1).sum(axis=2)
    groups = attribute(node, "group", 1)
    channels = np.zeros(groups * lost.shape[1])
    channels[: len(mean)] = mean
    of_group = np.repeat(channels.reshape(groups, -1), lost.shape[0] // groups, axis=0)
    return np.asarray((lost * of_group).sum(axis=1), np.float64)


def is_depthwise(node: ir.Node, weight: NDArray[Any]) -> bool:
    """Whether a Conv has one input channel a group; its kernel adds in 32 bits."""
    return is_op(node, "Conv") and attribute(node, "group", 1) > 1 and weight.shape[1] == 1


def pair_sums(node: ir.Node, codes: NDArray[Any], axis: int) -> NDArray[np.int32]:
    """For each output channel the largest |sum| of two codes that a kernel adds in 16 bits.

    The kernels add neighbours along the dot product: channels fastest in a Conv (its input is
    gathered channels-last), rows of the weight in a matrix product.
    """
    rows = np.moveaxis(codes.astype(np.int32), axis, 0)
    if is_op(node, "Conv"):
        rows = np.moveaxis(rows, 1, -1)
    rows = rows.reshape(rows.shape[0], -1)
    if rows.shape[1] % 2:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    pairs = rows.reshape(rows.shape[0], -1, 2)
    positive = np.maximum(pairs, 0).sum(axis=2).max(axis=1, initial=0)
    negative = np.minimum(pairs, 0).sum(axis=2).min(axis=1, initial=0)
    return np.asarray(np.maximum(positive, -negative), np.int32)


def _repair_pairs(
    node: ir.Node, weight: NDArray[Any], axis: int, codes: NDArray[Any], qparams: QParams
) -> tuple[NDArray[Any], QParams, int]:
    """Coarsen the grid of just those channels whose pair sums can leave 16 bits."""
    repaired: set[int] = set()
    while (worst := pair_sums(node, codes, axis)).max(initial=0) > PAIR_LIMIT:
        factor = np.maximum(worst / PAIR_LIMIT, 1.0) * np.where(worst > PAIR_LIMIT, 1.002, 1.0)
        repaired.update(np.flatnonzero(factor > 1).tolist())
        factor = factor if qparams.scale.ndim else factor.max()
        qparams = _with_scale(qparams, (qparams.scale * factor).astype(np.float32))
        codes = quantize(weight, qparams)
    return codes, qparams, len(repaired)


def _channels(qparams: QParams, weight: NDArray[Any], axis: int) -> tuple[int, ...]:
    return (weight.shape[axis],) if qparams.scale.ndim else ()


def _with_scale(qparams: QParams, scale: NDArray[np.float32]) -> QParams:
    zero_point = np.broadcast_to(qparams.zero_point, scale.shape)
    return QParams(scale, zero_point, qparams.qscheme, qparams.qdtype, qparams.ch_axis)
