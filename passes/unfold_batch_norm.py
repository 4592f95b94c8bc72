"""Write a BatchNormalization that has no linear op in front as Mul and Add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import is_op, nodes, rank
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.fuse_conv_batch_norm import batch_norm_affine
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class UnfoldBatchNorm(GraphPass):
    """Give what is left of the normalization a form that has integer kernels.

    ``y = BatchNormalization (x, g, b, m, v)`` → ``t = Mul (x, k); y = Add (t, c)``; one in training
    mode stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for norm in list(nodes(model)):
            if not is_op(norm, "BatchNormalization"):
                continue
            affine, dims = batch_norm_affine(norm), rank(norm.inputs[0])
            if affine is None or dims is None or dims < 2 or norm.outputs[0].dtype is None:
                continue
            emit = Emit(model, names, norm, self.name)
            dtype, shape = norm.outputs[0].dtype.numpy(), [-1] + [1] * (dims - 2)
            factor, offset = (
                emit.constant(np.asarray(array, dtype).reshape(shape), f"{norm.name}_{what}")
                for array, what in zip(affine, ("factor", "offset"), strict=True)
            )
            like: dict[str, Any] = {"like": norm.outputs[0], "dtype": norm.outputs[0].dtype}
            scaled = emit.op("Mul", [norm.inputs[0], factor], **like)
            ledger_of(model).record(norm, "float", "written as Mul and Add", self.name)
            take_place(norm, [emit.op("Add", [scaled, offset], **like)])
            changed = True
        return changed
