"""Write subtraction and division by constants, and maxima with them, in the commoner ops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import constant, is_constant, is_float, is_op, nodes, rank, scalar
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class NormalizeArithmetic(GraphPass):
    """Fewer ops for the patterns and the op table to know.

    ``y = Sub (x, c)`` → ``y = Add (x, -c)``, ``y = Div (x, c)`` → ``y = Mul (x, 1/c)`` and
    ``y = Max (x, c)`` → ``y = Clip (x, c)`` for a number c; integers stay, and so does a division
    by zero.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            if not is_float(node.outputs[0]):
                continue
            emit, new = Emit(model, names, node, self.name), None
            if is_op(node, "Sub", "Div"):
                new = _commuted(emit, node)
            elif is_op(node, "Max", "Min") and len(node.inputs) == 2:
                new = _clipped(emit, node)
            if new is not None:
                take_place(node, [new])
                changed = True
        return changed


def _commuted(emit: Emit, node: ir.Node) -> ir.Value | None:
    """Sub or Div by a constant as Add or Mul."""
    if not is_constant(node.inputs[1]) or is_constant(node.inputs[0]):
        return None
    array, output = constant(node.inputs[1]), node.outputs[0]
    assert array is not None
    # a subnormal divisor has an infinite inverse
    if is_op(node, "Div") and not np.all(np.abs(array.astype(np.float64)) > 1e-30):
        return None
    other = -array if is_op(node, "Sub") else (1 / array).astype(array.dtype)
    value = emit.constant(np.asarray(other, array.dtype), f"{node.name}_operand")
    op_type = "Add" if is_op(node, "Sub") else "Mul"
    return emit.op(op_type, [node.inputs[0], value], like=output, dtype=output.dtype)


def _clipped(emit: Emit, node: ir.Node) -> ir.Value | None:
    """Max or Min with a number as Clip."""
    output = node.outputs[0]
    for data, other in (node.inputs, reversed(node.inputs)):
        number = scalar(other)
        if number is None or data is None or is_constant(data) or not np.isfinite(number):
            continue
        if rank(data) != rank(output) or output.dtype is None:
            continue
        bound = emit.constant(np.asarray(number, output.dtype.numpy()), f"{node.name}_bound")
        bounds = [bound] if is_op(node, "Max") else [None, bound]
        return emit.op("Clip", [data, *bounds], like=output, dtype=output.dtype)
    return None
