"""Put the bias of a matrix product into Gemm."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import remove, take_place
from lucid_fx.ir.walk import constant, is_constant, is_op, nodes, only_consumer, rank
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class FuseMatMulAdd(GraphPass):
    """Keep the bias in 32 bits, where the kernel adds it, instead of rounding the sum twice.

    ``t = MatMul (x, w); y = Add (t, b)`` → ``y = Gemm (x, w, b)`` for matrices; products of more
    dimensions, which Gemm does not take, stay.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for product in list(nodes(model)):
            found = _bias(product) if is_op(product, "MatMul") else None
            if found is None:
                continue
            add, bias = found
            output = add.outputs[0]
            emit = Emit(model, names, add, self.name, (product, add))
            inputs = [product.inputs[0], product.inputs[1], bias]
            new = emit.op("Gemm", inputs, like=output, dtype=output.dtype, name=product.name)
            take_place(add, [new])
            remove(product)
            ledger_of(model).record(add, "fused", f"the bias of {product.name}", self.name)
            changed = True
        return changed


def _bias(product: ir.Node) -> tuple[ir.Node, ir.Value] | None:
    """The Add behind a product of a matrix and a constant matrix, and its constant vector."""
    data, weight = product.inputs
    if rank(data) != 2 or rank(weight) != 2 or not is_constant(weight):
        return None
    add = only_consumer(product.outputs[0])
    if add is None or not is_op(add, "Add") or add.graph is not product.graph:
        return None
    other = add.inputs[1] if add.inputs[0] is product.outputs[0] else add.inputs[0]
    array = constant(other) if other is not None and rank(other) == 1 else None
    assert weight is not None and weight.const_value is not None
    columns = weight.const_value.shape.numpy()[1]
    if other is None or array is None or array.size != columns:
        return None
    return add, other
