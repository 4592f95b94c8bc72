"""Remove nodes and initializers that nobody uses."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.provenance import origins
from lucid_fx.ir.rewrite import forget_dead_uses
from lucid_fx.ir.walk import nodes
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class EliminateDead(GraphPass):
    """Remove what no graph output depends on.

    ``t = Relu (x)`` without a use → nothing; graph inputs stay, used or not.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        before = list(nodes(model))
        changed = False
        while RemoveUnusedNodesPass()(model).modified:
            changed = True
            forget_dead_uses(model)  # what only a body of a removed If read goes next
        kept = {name for node in nodes(model) for name in origins(node)}
        for node in before:
            if node.graph is None and not kept.intersection(origins(node)):
                ledger_of(model).record(node, "fused", "no output depends on it", self.name)
        return changed
