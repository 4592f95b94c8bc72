"""Write subtraction and division by constants as addition and multiplication."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import constant, is_constant, is_float, is_op, nodes
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class NormalizeArithmetic(GraphPass):
    """Fewer ops for the patterns and the op table to know.

    ``y = Sub (x, c)`` → ``y = Add (x, -c)`` and ``y = Div (x, c)`` → ``y = Mul (x, 1/c)``; integers
    stay, and so does a division by zero.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            if not is_op(node, "Sub", "Div") or not is_float(node.outputs[0]):
                continue
            if not is_constant(node.inputs[1]) or is_constant(node.inputs[0]):
                continue
            array = constant(node.inputs[1])
            assert array is not None
            if is_op(node, "Div") and not np.all(np.abs(array.astype(np.float64)) > 1e-30):
                continue
            emit = Emit(model, names, node, self.name)
            other = -array if is_op(node, "Sub") else (1 / array).astype(array.dtype)
            value = emit.constant(np.asarray(other, array.dtype), f"{node.name}_operand")
            op_type = "Add" if is_op(node, "Sub") else "Mul"
            output = node.outputs[0]
            new = emit.op(op_type, [node.inputs[0], value], like=output, dtype=output.dtype)
            take_place(node, [new])
            changed = True
        return changed
