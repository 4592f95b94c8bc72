"""Raise the ONNX operator set of a model, only as far as a chosen op needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.walk import attribute, is_op, nodes, opset, rank
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass

HIGHEST = 17
"""No op that we write needs a later one."""

_ATTRIBUTE_TO_INPUT = {
    "Squeeze": "axes", "Unsqueeze": "axes", "ReduceSum": "axes", "Split": "split"
}  # fmt: skip
"""Attributes that are inputs from operator set 13 on."""


@dataclass(frozen=True)
class RaiseOpset(GraphPass):
    """Import at least this version of the ONNX domain.

    ``<opset 11> y = Squeeze <axes = [0]> (x)`` → ``<opset 13> y = Squeeze (x, axes)``; a model with
    a Softmax over several axes at once, which 13 no longer has, stays, with a note in the ledger.

    Attributes:
        version: the operator set that is needed.
    """

    version: int = 13

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        before = opset(model)
        reason = raise_opset(model, self.version, self.name)
        if reason is not None:
            ledger_of(model).note(f"the operator set stays {before}: {reason}")
        return opset(model) != before


def raise_opset(model: ir.Model, version: int, pass_name: str = "raise-opset") -> str | None:
    """Rewrite the ops whose form changed up to ``version``.

    Returns:
        None when the model is at ``version`` or later now; else the reason why it cannot be raised,
        and the model is as it was.
    """
    now = opset(model)
    if now >= version:
        return None
    if version > HIGHEST:
        return f"ways up to {HIGHEST} are known only"
    for node in nodes(model):
        reason = _obstacle(node, now, version)
        if reason is not None:
            return f"{reason} ({node.name})"
    names = Names(model)
    for node in list(nodes(model)):
        _rewrite(Emit(model, names, node, pass_name), node, now, version)
    domain = "ai.onnx" if "ai.onnx" in model.graph.opset_imports else ""
    model.graph.opset_imports[domain] = version
    return None


def _obstacle(node: ir.Node, now: int, version: int) -> str | None:
    """Why a node has no form that means the same in a later operator set."""
    if now < 13 <= version and is_op(node, "Softmax", "LogSoftmax", "Hardmax"):
        dims, axis = rank(node.inputs[0]), attribute(node, "axis", 1)
        if dims is None or axis % dims != dims - 1:
            return f"{node.op_type} is over all axes from {axis} on"
    mode = attribute(node, "coordinate_transformation_mode", "")
    if now < 13 <= version and is_op(node, "Resize") and mode == "tf_half_pixel_for_nn":
        return "Resize has a mode that later operator sets lack"
    further = any(value.uses() or value.is_graph_output() for value in node.outputs[1:])
    if now < 14 <= version and is_op(node, "BatchNormalization") and further:
        return "BatchNormalization is in training mode"
    return None


def _rewrite(emit: Emit, node: ir.Node, now: int, version: int) -> None:
    """Write a node in the form of ``version``."""
    if now < 12 <= version and is_op(node, "Dropout"):
        ratio = node.attributes.pop("ratio", None)
        if ratio is not None:
            _append(node, emit.constant(np.asarray(ratio.value, np.float32), f"{node.name}_ratio"))
    if now < 13 <= version and is_op(node, *_ATTRIBUTE_TO_INPUT):
        given = node.attributes.pop(_ATTRIBUTE_TO_INPUT[node.op_type], None)
        if given is not None:
            array = np.asarray(given.value, np.int64)
            _append(node, emit.constant(array, f"{node.name}_{given.name}"))
    if now < 13 <= version and is_op(node, "Softmax", "LogSoftmax", "Hardmax"):
        node.attributes["axis"] = ir.AttrInt64("axis", attribute(node, "axis", 1))
    if now < 14 <= version and is_op(node, "BatchNormalization"):
        node.resize_outputs(1)
    if now < 16 <= version and is_op(node, "RoiAlign"):
        node.attributes["coordinate_transformation_mode"] = ir.AttrString(
            "coordinate_transformation_mode", "output_half_pixel"
        )


def _append(node: ir.Node, value: ir.Value) -> None:
    node.resize_inputs(2)
    node.replace_input_with(1, value)
