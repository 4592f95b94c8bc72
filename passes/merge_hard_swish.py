"""Write x · HardSigmoid(x) in float regions as one op."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import remove, take_place
from lucid_fx.ir.walk import attribute, nodes, only_consumer
from lucid_fx.ops.elementwise import gate_of
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.raise_opset import raise_opset

HARD_SWISH_OPSET = 14
"""First ONNX operator set with HardSwish."""


@dataclass(frozen=True)
class MergeHardSwish(GraphPass):
    """One reader of a dequantized value in place of two, for each of which onnxruntime would repeat
    the DequantizeLinear.

    ``h = HardSigmoid <alpha = 1/6, beta = 0.5> (x); y = Mul (x, h)`` → ``y = HardSwish (x)``; a
    pair of which one computes on codes stays.

    Attributes:
        integer: nodes that compute on codes.
    """

    integer: frozenset[str] = field(default_factory=frozenset)

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        pairs = [(gate, node) for node in nodes(model) if (gate := self._gate(node)) is not None]
        if not pairs:
            return False
        obstacle = raise_opset(model, HARD_SWISH_OPSET, self.name)
        if obstacle is not None:
            ledger_of(model).note(f"x · HardSigmoid(x) stays two ops: {obstacle}")
            return False
        names = Names(model)
        for gate, node in pairs:
            emit, output = Emit(model, names, node, self.name, (gate, node)), node.outputs[0]
            merged = emit.op("HardSwish", [gate.inputs[0]], like=output, dtype=output.dtype)
            take_place(node, [merged])
            remove(gate)
        return True

    def _gate(self, node: ir.Node) -> ir.Node | None:
        """The HardSigmoid of a Mul that makes a hard-swish in float; None otherwise."""
        gate = gate_of(node, "HardSigmoid")
        if gate is None or {node.name, gate.name} & self.integer:
            return None
        standard = (
            abs(attribute(gate, "alpha", 0.2) - 1 / 6) < 1e-6
            and abs(attribute(gate, "beta", 0.5) - 0.5) < 1e-6
        )
        return gate if standard and only_consumer(gate.outputs[0]) is node else None
