"""Compute at once what does not depend on the inputs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnxscript.optimizer import fold_constants

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.walk import graphs, nodes
from lucid_fx.ops.table import is_quantized_op
from lucid_fx.passes.lift_constants import LiftConstants
from lucid_fx.passes.name_everything import NameEverything
from lucid_fx.passes.pipeline import GraphPass


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
        result = fold_constants(
            model,
            onnx_shape_inference=False,
            input_size_limit=self.size_limit,
            output_size_limit=self.size_limit,
            should_fold=lambda node: False if is_quantized_op(node) else None,
        )
        if not result.modified:
            return False
        _forget_dead_uses(model)
        LiftConstants().run(model)
        NameEverything().run(model)
        after = {node.name for node in nodes(model)}
        for name, node in before.items():
            if name not in after:
                ledger_of(model).record(node, "fused", "computed at once: constant", self.name)
        return True


def _forget_dead_uses(model: ir.Model) -> None:
    """Cut what folded branches of an If still hold, so that uses() tells the truth."""
    alive = {id(node) for node in nodes(model)}
    for graph in graphs(model):
        values = [*graph.inputs, *graph.initializers.values()]
        for value in (*values, *(v for node in graph for v in node.outputs)):
            for use in list(value.uses()):
                if id(use.node) not in alive:
                    use.node.replace_input_with(use.idx, None)
