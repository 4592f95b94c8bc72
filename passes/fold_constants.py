"""Compute at once what does not depend on the inputs."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import onnx_ir as ir
from onnxscript.optimizer import fold_constants

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.rewrite import forget_dead_uses
from lucid_fx.ir.walk import input_at, is_op, nodes
from lucid_fx.ops.table import is_quantized_op
from lucid_fx.passes.lift_constants import LiftConstants
from lucid_fx.passes.name_everything import NameEverything
from lucid_fx.passes.pipeline import GraphPass

# its warnings speak of nodes that it leaves alone
logging.getLogger("onnxscript.optimizer._constant_folding").setLevel(logging.ERROR)


@dataclass(frozen=True)
class FoldConstants(GraphPass):
    """Replace nodes with constant inputs by their result.

    ``c = Add (one, two)`` → initializer ``c``; a DequantizeLinear of a weight stays, or a model
    that is quantized already would grow back to float.

    Attributes:
        size_limit: bytes of a result above which a node is left, unless it shrinks its input.
    """

    size_limit: int = 64 * 2**20

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        before = {node.name: node for node in nodes(model)}
        _settle_casts(model)
        if not self._fold(model):
            return False
        forget_dead_uses(model)
        LiftConstants().run(model)
        NameEverything().run(model)
        after = {node.name for node in nodes(model)}
        for name, node in before.items():
            if name not in after:
                ledger_of(model).record(node, "fused", "computed at once: constant", self.name)
        return True

    def _fold(self, model: ir.Model) -> bool:
        try:
            result = fold_constants(
                model,
                onnx_shape_inference=False,
                input_size_limit=self.size_limit,
                output_size_limit=self.size_limit,
                should_fold=lambda node: False if is_quantized_op(node) else None,
            )
        except RuntimeError as error:  # what was folded before the node that fails is whole
            ledger_of(model).note(f"constants are folded in part only: {error}")
            return True
        return bool(result.modified)


def _settle_casts(model: ir.Model) -> None:
    """Write CastLike as Cast with all its attributes; the folder would drop ``saturate``."""
    for node in nodes(model):
        like = input_at(node, 1)
        if is_op(node, "CastLike") and like is not None and like.dtype is not None:
            node.op_type = "Cast"
            node.attributes["to"] = ir.AttrInt64("to", like.dtype.value)
            node.resize_inputs(1)
