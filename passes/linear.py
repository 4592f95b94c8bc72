"""The one rule by which an affine map behind a linear op goes into its weight and bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.walk import attribute, constant, input_at, is_op
from lucid_fx.ops.emit import Emit


def output_channels(node: ir.Node) -> int | None:
    """Number of output channels of a linear op with a constant weight."""
    weight = input_at(node, 1)
    if weight is None or weight.const_value is None or weight.is_graph_input():
        return None
    shape = list(weight.const_value.shape.numpy())
    if is_op(node, "Conv"):
        return shape[0]
    if is_op(node, "ConvTranspose"):
        return shape[1] * int(attribute(node, "group", 1))
    if is_op(node, "Gemm"):
        return shape[0 if attribute(node, "transB", 0) else 1]
    return None


def fold_affine(
    emit: Emit, node: ir.Node, factor: NDArray[Any], offset: NDArray[Any]
) -> ir.Value | None:
    """Write ``node * factor + offset`` as one node.

    Args:
        emit: where the new node goes.
        node: a Conv, ConvTranspose or Gemm with constant weight and bias.
        factor, offset: float64, scalar or one for each output channel.

    Returns:
        The output of the new node; None when the fold is not possible.
    """
    channels, weight = output_channels(node), constant(input_at(node, 1))
    given = input_at(node, 2)
    bias = constant(given)
    if channels is None or weight is None or (given is not None and bias is None):
        return None
    if node.graph is not emit.before.graph:
        return None  # a body would compute again what stands outside of it
    if is_op(node, "Gemm") and attribute(node, "alpha", 1.0) != 1.0:
        return None
    beta = attribute(node, "beta", 1.0) if is_op(node, "Gemm") else 1.0
    old = np.zeros(channels) if bias is None else np.asarray(bias, np.float64) * beta
    if (old.size != 1 and old.shape[-1] != old.size) or old.size not in (1, channels):
        return None  # Gemm takes a bias for each row too
    factor = np.broadcast_to(factor.reshape(-1), (channels,))
    new_bias = np.broadcast_to(old.reshape(-1), (channels,)) * factor + offset.reshape(-1)
    new_weight = (weight * _along(node, weight, factor)).astype(weight.dtype)
    attributes = {k: a for k, a in node.attributes.items() if k != "beta"}
    stem = node.inputs[1].name if node.inputs[1] is not None else node.name
    inputs = [
        node.inputs[0],
        emit.constant(new_weight, f"{stem}_folded"),
        emit.constant(new_bias.astype(weight.dtype), f"{stem}_bias"),
    ]
    return emit.op(
        node.op_type, inputs, attributes, like=node.outputs[0], dtype=node.outputs[0].dtype,
        name=node.name,
    )  # fmt: skip


def _along(node: ir.Node, weight: NDArray[Any], factor: NDArray[Any]) -> NDArray[Any]:
    """The factor shaped to multiply the weight's output channels."""
    if is_op(node, "Conv"):
        return factor.reshape([-1] + [1] * (weight.ndim - 1))
    if is_op(node, "Gemm"):
        return factor.reshape([-1, 1] if attribute(node, "transB", 0) else [1, -1])
    groups = int(attribute(node, "group", 1))  # weight is (in, out / groups, …)
    rows = np.repeat(factor.reshape(groups, -1), weight.shape[0] // groups, axis=0)
    return rows.reshape([*rows.shape] + [1] * (weight.ndim - 2))


def is_depthwise(node: ir.Node) -> bool:
    """Whether a node is a Conv with one input channel a group, and more than one group."""
    weight = node.inputs[1]
    if not is_op(node, "Conv") or weight is None or weight.const_value is None:
        return False
    group = node.attributes.get("group")
    return weight.const_value.shape.numpy()[1] == 1 and group is not None and group.as_int() > 1


def along_input(node: ir.Node, weight: NDArray[Any], factor: NDArray[Any]) -> NDArray[Any]:
    """The factors shaped to multiply the weight's input channels."""
    if is_op(node, "Conv"):
        if is_depthwise(node):
            repeated = np.repeat(factor, weight.shape[0] // len(factor))
            return repeated.reshape([-1] + [1] * (weight.ndim - 1))
        return factor.reshape([1, -1] + [1] * (weight.ndim - 2))
    transposed = is_op(node, "Gemm") and attribute(node, "transB", 0)
    return factor.reshape([1, -1] if transposed else [-1, 1])


def weight_by_input(node: ir.Node, channels: int) -> NDArray[Any]:
    """The weight as (input channels, taps, outputs); one output for a depthwise Conv."""
    weight = constant(node.inputs[1])
    assert weight is not None
    weight = weight.astype(np.float64)
    if not is_op(node, "Conv"):
        transposed = is_op(node, "Gemm") and attribute(node, "transB", 0)
        return (weight.T if transposed else weight)[:, None, :]
    if is_depthwise(node):
        return weight.reshape(channels, -1, 1)
    return np.moveaxis(weight, 0, -1).reshape(weight.shape[1], -1, weight.shape[0])
