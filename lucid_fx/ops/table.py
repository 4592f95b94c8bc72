"""The op table: one row for each operator; prepare, convert, lowering and ledger read the same."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.walk import ONNX_DOMAINS, constant, input_at, is_constant, is_float
from lucid_fx.ops import elementwise, matrix, movement, pooling, recurrent
from lucid_fx.ops.emit import CONTRIB, NATIVE
from lucid_fx.ops.row import OpRow, OutputGrid

ROWS = (*matrix.ROWS, *elementwise.ROWS, *pooling.ROWS, *movement.ROWS, *recurrent.ROWS)

_BY_NAME = {(row.domain, row.op_type): row for row in ROWS}

_QUANTIZED_OPS = {
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger",
    "QLinearConv", "QLinearMatMul",
}  # fmt: skip
_QUANTIZED_PREFIXES = (
    "QLinear", "QGemm", "MatMulInteger", "DynamicQuantize", "QAttention", "MatMulNBits", "QOrdered",
    "QEmbed", "GatherBlockQuantized", "QMoE", "MatMulBnb4", "MatMulFpQ4", "QuantizeLinear",
    "DequantizeLinear",
)  # fmt: skip

NO_REALS = "it computes no reals that have a grid"
"""Why integer and boolean ops, and those on shapes, stay as they are."""

_BODIES = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def find_row(node: ir.Node) -> OpRow | None:
    """The row of a node's operator, None where the table has none."""
    domain = "" if node.domain in ONNX_DOMAINS else node.domain
    return _BY_NAME.get((domain, node.op_type))


def is_quantized_op(node: ir.Node) -> bool:
    """Whether the node computes on codes, or goes between codes and real values."""
    if node.domain in ONNX_DOMAINS:
        return node.op_type in _QUANTIZED_OPS
    if node.domain == NATIVE:
        return node.op_type == "MatMulInt4"
    return node.domain == CONTRIB and node.op_type.startswith(_QUANTIZED_PREFIXES)


def refusal(node: ir.Node) -> str | None:
    """Why a node cannot compute on codes; None when it can."""
    row = find_row(node)
    if not any(is_float(value) for value in node.outputs):
        return NO_REALS
    if row is None and any(attr.type in _BODIES for attr in node.attributes.values()):
        return "the nodes in its bodies are looked at one by one"
    if row is None:
        return f"the op table has no integer form of {node.op_type}"
    if row.lower is None:
        return row.why_float
    return _type_refusal(node, row) or _constant_refusal(node, row) or row.refuses(node)


def _type_refusal(node: ir.Node, row: OpRow) -> str | None:
    """Why the types of what a node reads and makes are not those of integer kernels."""
    for value in (*(node.inputs[index] for index in row.data(node)), *node.outputs):
        if value is None:
            continue
        if is_float(value) and value.dtype != ir.DataType.FLOAT:
            return f"it computes in {value.dtype}, and integer kernels give float32 only"
        if value.dtype is None and value.name:
            return f"the type of {value.name!r} is not known"
    return None


def _constant_refusal(node: ir.Node, row: OpRow) -> str | None:
    """Why the constants of a node cannot be put on codes."""
    if row.output is OutputGrid.SHARED and is_constant(node.inputs[row.data(node)[0]]):
        return "it moves a constant"
    for index in (*row.data(node), row.weight, row.bias):
        array = None if index is None else constant(input_at(node, index))
        if array is not None and not np.isfinite(array).all():
            return "a constant operand is not finite"
    return None


def only_moves(node: ir.Node) -> bool:
    """Whether a node gives some of the values it reads, and computes none."""
    row = find_row(node)
    return row in movement.ROWS and row is not None and row.output is OutputGrid.SHARED


def needed_range(value: ir.Value) -> tuple[float, float]:
    """The range outside which no reader of a value tells inputs apart."""
    if value.is_graph_output() or not value.uses():
        return -float("inf"), float("inf")
    low, high = float("inf"), -float("inf")
    for use in value.uses():
        row = find_row(use.node)
        least, most = (
            row.matters(use.node)
            if row is not None and use.idx in row.data(use.node)
            else (-float("inf"), float("inf"))
        )
        low, high = min(low, least), max(high, most)
    return low, high
