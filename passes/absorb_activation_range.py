"""Let a Relu or Clip be the range of its producer's grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.provenance import mark
from lucid_fx.ir.rewrite import hand_over, remove
from lucid_fx.ir.walk import nodes
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class AbsorbActivationRange(GraphPass):
    """Saturation at the ends of the grid does what the activation did.

    ``c = Conv (x, w); y = Relu (c)`` → ``y = Conv (x, w)``, where ``y`` will get a grid that starts
    at zero; a Relu that is not asked for stays.

    Attributes:
        absorbed: names of the Relu and Clip nodes.
    """

    completed_by: ClassVar[str] = "insert-qdq"

    absorbed: frozenset[str] = field(default_factory=frozenset)

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        changed = False
        for node in list(nodes(model)):
            if node.name not in self.absorbed:
                continue
            source = node.inputs[0]
            assert source is not None
            producer = source.producer()
            assert producer is not None
            ledger_of(model).record(
                node, "quantized", f"it is the range of {producer.name}'s grid", self.name
            )
            hand_over(node.outputs[0], source)
            mark(producer, self.name, (producer, node))
            remove(node)
            changed = True
        return changed
