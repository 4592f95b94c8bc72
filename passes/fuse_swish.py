"""Recognise swish (SiLU): x · Sigmoid(x)."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import remove, take_place
from lucid_fx.ir.walk import nodes, only_consumer
from lucid_fx.ops.elementwise import gate_of
from lucid_fx.ops.emit import CONTRIB, Emit
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class FuseSwish(GraphPass):
    """Write x · Sigmoid(x) as onnxruntime's QuickGelu, as its own optimiser would.

    ``g = Sigmoid (x); y = Mul (x, g)`` → ``y = com.microsoft.QuickGelu <alpha = 1> (x)``: x has one
    reader, so that a float region dequantizes it once. A gate that is read elsewhere too stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            gate = _gate(node)
            if gate is None or node.outputs[0].dtype != ir.DataType.FLOAT:
                continue
            emit, output = Emit(model, names, node, self.name, (gate, node)), node.outputs[0]
            swish = emit.op(
                "QuickGelu", [gate.inputs[0]], {"alpha": 1.0}, domain=CONTRIB, like=output,
                dtype=output.dtype,
            )  # fmt: skip
            take_place(node, [swish])
            remove(gate)
            changed = True
        return changed


def _gate(node: ir.Node) -> ir.Node | None:
    """The Sigmoid of a swish that nobody else reads; None otherwise."""
    gate = gate_of(node, "Sigmoid")
    if gate is None or gate.graph is not node.graph:
        return None
    return gate if only_consumer(gate.outputs[0]) is node else None
