"""Inline local functions, so that later passes see one level of ops."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from lucid_fx.passes.name_everything import NameEverything
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class InlineFunctions(GraphPass):
    """Replace each call of a local function by its body.

    ``y = mine.f(x)`` with ``f(a) => Relu(a)`` → ``y = Relu(x)``; a model without functions stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        if not model.functions:
            return False
        InlinePass()(model)
        NameEverything().run(model)
        return True
