"""Keep embedding tables in 8 bits, a scale for each row."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import attribute, constant, is_constant, is_op, nodes, rank, size
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.quantization import PerChannelMinMaxObserver, quantize

LEAST_ELEMENTS = 2**16
"""Tables below this size are not worth two more nodes."""


@dataclass(frozen=True)
class QuantizeEmbeddings(GraphPass):
    """Gather codes and scales of rows, and multiply: the whole table is never dequantized.

    ``y = Gather (table, ids)`` → ``c = Gather (codes, ids); s = Gather (scales, ids); y = Mul (Cast
    (c), s)``; a small table, or one that is read by another op too, stays.

    Attributes:
        excluded: nodes that the configuration leaves in float.
    """

    excluded: frozenset[str] = field(default_factory=frozenset)

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, done, changed = Names(model), dict[int, tuple[ir.Value, ir.Value]](), False
        for node in list(nodes(model)):
            if not self._is_embedding(node):
                continue
            table = node.inputs[0]
            assert table is not None
            emit = Emit(model, names, node, self.name)
            if id(table) not in done:
                done[id(table)] = self._codes(emit, table)
            codes, scales = done[id(table)]
            rows = emit.op("Gather", [codes, node.inputs[1]], {"axis": 0}, like=node.outputs[0])
            rows.dtype = ir.DataType.INT8
            step = emit.op("Gather", [scales, node.inputs[1]], {"axis": 0}, dtype=table.dtype)
            to = {"to": int(ir.DataType.FLOAT)}
            real = emit.op("Cast", [rows], to, like=node.outputs[0], dtype=ir.DataType.FLOAT)
            product = emit.op("Mul", [real, step], like=node.outputs[0], dtype=ir.DataType.FLOAT)
            ledger_of(model).record(
                node, "quantized", "table in 8 bits, a scale for each row", self.name
            )
            take_place(node, [product])
            changed = True
        return changed

    def _is_embedding(self, node: ir.Node) -> bool:
        table = node.inputs[0] if is_op(node, "Gather") else None
        if table is None or node.name in self.excluded or not is_constant(table):
            return False
        if table.dtype != ir.DataType.FLOAT or rank(table) != 2 or attribute(node, "axis", 0):
            return False
        alone = all(is_op(use.node, "Gather") and use.idx == 0 for use in table.uses())
        return alone and (size(table) or 0) >= LEAST_ELEMENTS

    def _codes(self, emit: Emit, table: ir.Value) -> tuple[ir.Value, ir.Value]:
        array = constant(table)
        assert array is not None
        observer = PerChannelMinMaxObserver(ch_axis=0)
        observer.forward(array)
        grid = observer.qparams()
        return (
            emit.constant(quantize(array, grid), f"{table.name}_quantized"),
            emit.constant(grid.scale.reshape(-1, 1), f"{table.name}_scale"),
        )
