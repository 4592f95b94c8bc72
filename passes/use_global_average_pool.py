"""Write the mean over both image axes as GlobalAveragePool."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import attribute, is_float, is_op, nodes, rank
from lucid_fx.ops.emit import Emit
from lucid_fx.ops.pooling import reduced_axes
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class UseGlobalAveragePool(GraphPass):
    """A pooling op has kernels for blocked, channels-last and integer images; a reduction has none.

    ``y = ReduceMean <axes = [2, 3]> (x)`` → ``y = GlobalAveragePool (x)`` for an image x; a mean
    that drops the axes, or over other ones, stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            if not is_op(node, "ReduceMean") or not is_float(node.outputs[0]):
                continue
            if rank(node.inputs[0]) != 4 or reduced_axes(node) != [2, 3]:
                continue
            if not attribute(node, "keepdims", 1):
                continue
            emit, output = Emit(model, names, node, self.name), node.outputs[0]
            inputs = [node.inputs[0]]
            pool = emit.op("GlobalAveragePool", inputs, like=output, dtype=output.dtype)
            take_place(node, [pool])
            changed = True
        return changed
