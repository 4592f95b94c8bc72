"""Turn Constant nodes and initializers of bodies into initializers of the main graph."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import (
    LiftConstantsToInitializersPass,
    LiftSubgraphInitializersToMainGraphPass,
)

from lucid_fx.passes.name_everything import NameEverything
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class LiftConstants(GraphPass):
    """Make every constant an initializer of the main graph, stored once.

    ``c = Constant <value = {1}> ()`` → initializer ``c``; a Constant that is a graph output stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        lifted = LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        moved = LiftSubgraphInitializersToMainGraphPass()(model)
        return NameEverything().run(model) or lifted.modified or moved.modified
