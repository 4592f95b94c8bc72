"""Fold a BatchNormalization into the Conv, ConvTranspose or Gemm in front of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import remove, take_place
from lucid_fx.ir.walk import attribute, constant, is_op, nodes, only_consumer
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.linear import fold_affine
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class FuseConvBatchNorm(GraphPass):
    """Scale the weight by gamma/sqrt(var + eps) and shift the bias.

    ``c = Conv (x, w); y = BatchNormalization (c, g, b, m, v)`` → ``y = Conv (x, w', b')``; a Conv
    whose output has a second consumer stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for norm in list(nodes(model)):
            if not is_op(norm, "BatchNormalization") or norm.inputs[0] is None:
                continue
            linear, affine = norm.inputs[0].producer(), batch_norm_affine(norm)
            if linear is None or affine is None or only_consumer(norm.inputs[0]) is not norm:
                continue
            emit = Emit(model, names, norm, self.name, (linear, norm))
            fused = fold_affine(emit, linear, *affine)
            if fused is not None:
                take_place(norm, [fused])
                remove(linear)
                ledger_of(model).record(norm, "fused", f"folded into {linear.name}", self.name)
                changed = True
        return changed


def batch_norm_affine(norm: ir.Node) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Factor and offset by channel that the normalization stands for; None when not constant."""
    if attribute(norm, "training_mode", 0) or any(
        v.uses() or v.is_graph_output() for v in norm.outputs[1:]
    ):
        return None
    arrays = [constant(value) for value in norm.inputs[1:5]]
    if any(array is None for array in arrays):
        return None
    gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    factor = gamma / np.sqrt(variance + attribute(norm, "epsilon", 1e-5))
    return factor, beta - mean * factor
