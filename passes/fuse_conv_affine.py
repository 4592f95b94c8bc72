"""Fold a multiplication or addition by constants into the linear op in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import remove, take_place
from lucid_fx.ir.walk import constant, is_constant, is_op, nodes, only_consumer, rank
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.linear import fold_affine, output_channels
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class FuseConvAffine(GraphPass):
    """Put a constant factor or offset (scalar, or one for each channel) into weight and bias.

    ``c = Conv (x, w); y = Mul (c, s)`` → ``y = Conv (x, w')``; an offset that differs from pixel to
    pixel stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            if not is_op(node, "Mul", "Add"):
                continue
            found = _linear_and_constant(node)
            if found is None:
                continue
            linear, array = found
            one, zero = np.ones(1), np.zeros(1)
            affine = (array, zero) if is_op(node, "Mul") else (one, array)
            emit = Emit(model, names, node, self.name, (linear, node))
            fused = fold_affine(emit, linear, *affine)
            if fused is not None:
                take_place(node, [fused])
                remove(linear)
                ledger_of(model).record(node, "fused", f"folded into {linear.name}", self.name)
                changed = True
        return changed


def _linear_and_constant(node: ir.Node) -> tuple[ir.Node, NDArray[Any]] | None:
    for data, other in (node.inputs, reversed(node.inputs)):
        linear = data.producer() if data is not None else None
        if linear is None or data is None or not is_constant(other):
            continue
        if not is_op(linear, "Conv", "ConvTranspose", "Gemm") or only_consumer(data) is not node:
            continue
        channels, dims, array = output_channels(linear), rank(data), constant(other)
        if channels is None or dims is None or array is None:
            continue
        axis = dims - 1 if is_op(linear, "Gemm") else 1
        if array.ndim <= dims and _one_for_each_channel(array, dims, axis, channels):
            return linear, np.asarray(array, np.float64)
    return None


def _one_for_each_channel(array: NDArray[Any], dims: int, axis: int, channels: int) -> bool:
    shape = (1,) * (dims - array.ndim) + array.shape
    return all(size == 1 or (at == axis and size == channels) for at, size in enumerate(shape))
