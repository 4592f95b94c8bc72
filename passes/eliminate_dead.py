"""Remove nodes and initializers that nobody uses."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.provenance import origins
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
        result = RemoveUnusedNodesPass()(model)
        kept = {name for node in nodes(model) for name in origins(node)}
        for node in before:
            if node.graph is None and not kept.intersection(origins(node)):
                ledger_of(model).record(node, "fused", "no output depends on it", self.name)
        return bool(result.modified)
