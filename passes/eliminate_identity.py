"""Remove nodes that give their input back."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.rewrite import bypass
from lucid_fx.ir.walk import attribute, constant, input_at, is_op, nodes
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class EliminateIdentity(GraphPass):
    """Remove Identity, Dropout at inference, Casts to the same type, Transposes there and back.

    ``y = Identity (x); z = Relu (y)`` → ``z = Relu (x)``; an Identity from a graph input straight
    to a graph output stays, since both names belong to the interface.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        changed = False
        for node in list(nodes(model)):
            source = input_at(node, 0) if _gives_back(node) else _turned_back(node)
            if source is not None and bypass(node, source):
                ledger_of(model).record(node, "fused", "it gives its input back", self.name)
                changed = True
        return changed


def _turned_back(node: ir.Node) -> ir.Value | None:
    """What a Transpose gives back that another one has turned.

    Left in, the pair makes onnxruntime 1.32 abort when it stands between Q and DQ, and only
    bodies read its result.
    """
    source = input_at(node, 0)
    before = source.producer() if source is not None else None
    if not is_op(node, "Transpose") or before is None or not is_op(before, "Transpose"):
        return None
    first, second = attribute(before, "perm"), attribute(node, "perm")
    if first is None or second is None:
        return before.inputs[0] if first is second else None  # both reverse all axes
    back = [first[axis] for axis in second]
    return before.inputs[0] if back == sorted(back) else None


def _gives_back(node: ir.Node) -> bool:
    if is_op(node, "Identity"):
        return True
    if is_op(node, "Dropout"):
        training = constant(input_at(node, 2))
        mask_used = any(v.uses() or v.is_graph_output() for v in node.outputs[1:])
        given = input_at(node, 2) is not None
        return not mask_used and (not given or (training is not None and not training.any()))
    if is_op(node, "Cast"):
        source = node.inputs[0]
        return (
            source is not None
            and source.dtype is not None
            and (source.dtype.value == attribute(node, "to"))
        )
    return False
