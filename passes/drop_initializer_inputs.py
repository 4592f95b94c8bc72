"""Take initializers out of the graph inputs, so that they are constants."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class DropInitializerInputs(GraphPass):
    """Make weights that are also graph inputs (with a default) plain constants.

    ``main (x, w) <w = {1}>`` → ``main (x) <w = {1}>``; an input without a default stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        graph = model.graph
        dropped = [value for value in graph.inputs if value.name in graph.initializers]
        for value in dropped:
            graph.inputs.remove(value)
        if dropped:
            names = ", ".join(value.name or "" for value in dropped[:5])
            ledger_of(model).note(f"graph inputs with a default became constants: {names}")
        return bool(dropped)
