"""Replace DQ → op → Q by the op's integer form."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import remove
from lucid_fx.ir.walk import nodes
from lucid_fx.ops.emit import Emit, Grid, Quantized
from lucid_fx.ops.row import Operand, OpRow
from lucid_fx.ops.table import find_row
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.raise_opset import raise_opset

CODES_OPSET = 12
"""First ONNX operator set in which MaxPool, Max and Clip take 8-bit integers."""


@dataclass(frozen=True)
class LowerToQLinear(GraphPass):
    """Write QLinear ops (QOperator form) for nodes between DQ and Q.

    ``y = Q(Add (DQ(a), DQ(b)))`` → ``y = QLinearAdd (a, b)``; a node that the configuration leaves
    in float stays, although it may stand between DQ and Q.

    Attributes:
        integer: names of the nodes to lower.
    """

    integer: frozenset[str] = field(default_factory=frozenset)

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            row = find_row(node)
            if node.name not in self.integer or row is None or row.lower is None:
                continue
            inputs, outputs = _operands(node, row), _output_nodes(node)
            if inputs is None or outputs is None:
                continue
            _lower(Emit(model, names, node, self.name, (node,)), node, row, inputs, outputs)
            changed = True
        if changed:
            raise_opset(model, CODES_OPSET, self.name)
        return changed


def _lower(
    emit: Emit,
    node: ir.Node,
    row: OpRow,
    inputs: list[Operand],
    encoders: list[ir.Node | None],
) -> None:
    assert row.lower is not None
    grids = [None if q is None else _grid(q) for q in encoders]
    values = row.lower(emit, node, inputs, grids)
    decoders = [v.producer() for v in node.inputs if v is not None]
    for old, new, encoder in zip(node.outputs, values, encoders, strict=True):
        target = old if encoder is None else encoder.outputs[0]
        new.type = target.type
        target.replace_all_uses_with(new, replace_graph_outputs=True)
        name, target.name = target.name, f"{target.name}~replaced"
        new.name = name
        if encoder is not None:
            remove(encoder)
    remove(node)
    for decoder in decoders:
        if decoder is None or not is_decoder(decoder) or decoder.graph is None:
            continue
        if not decoder.outputs[0].uses() and not decoder.outputs[0].is_graph_output():
            remove(decoder)


def is_decoder(node: ir.Node | None) -> bool:
    """Whether a node is a DequantizeLinear, of ONNX or of onnxruntime."""
    return node is not None and node.op_type == "DequantizeLinear"


def is_encoder(node: ir.Node | None) -> bool:
    """Whether a node is a QuantizeLinear, of ONNX or of onnxruntime."""
    return node is not None and node.op_type == "QuantizeLinear"


def _grid(node: ir.Node) -> Grid:
    scale, zero_point = node.inputs[1], node.inputs[2]
    assert scale is not None and zero_point is not None
    return Grid(scale, zero_point)


def _operands(node: ir.Node, row: OpRow) -> list[Operand] | None:
    """The inputs of a node whose data and weight are all codes; None otherwise."""
    needed = set(row.data(node)) | ({row.weight} if row.weight is not None else set())
    found: list[Operand] = []
    for index, value in enumerate(node.inputs):
        producer = value.producer() if value is not None else None
        coded = index in needed or index == row.bias
        if coded and producer is not None and is_decoder(producer) and value is not None:
            codes = producer.inputs[0]
            assert codes is not None
            found.append(Quantized(codes, _grid(producer)))
        elif index in needed:
            return None
        else:
            found.append(value)
    return found


def _output_nodes(node: ir.Node) -> list[ir.Node | None] | None:
    """The single Q behind each output; None in place of one that is read as it is.

    Only matrix products can give real values from codes; other nodes must have a Q.
    """
    found: list[ir.Node | None] = []
    for value in node.outputs:
        readers = [use.node for use in value.uses()]
        encoded = len(readers) == 1 and is_encoder(readers[0]) and not value.is_graph_output()
        if not encoded and node.op_type not in ("MatMul", "Gemm"):
            return None
        found.append(readers[0] if encoded else None)
    return found
