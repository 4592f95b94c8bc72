"""Compute half-precision models in float32 inside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.provenance import mark
from lucid_fx.ir.walk import ONNX_DOMAINS, graphs, is_op, nodes
from lucid_fx.ops.emit import CONTRIB
from lucid_fx.passes.pipeline import GraphPass

HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype")
_EXACT_BITS = ("BitCast",)


@dataclass(frozen=True)
class WidenHalf(GraphPass):
    """Widen float16 and bfloat16, for which CPUs have no Conv, MatMul and Gemm.

    ``main (float16 x) => (float16 y) { y = Conv (x, w) }`` → ``a = Cast <to = 1> (x);
    b = Conv (a, w'); y = Cast <to = 10> (b)``; a table that only Gather reads keeps its type, and a
    model with half-precision sequences, or ops of unknown domains, stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        values = _half_values(model)
        if not values or not any(_gains(node) for node in nodes(model)):
            return False
        reason = _obstacle(model, values)
        if reason is not None:
            ledger_of(model).note(f"half precision is kept inside: {reason}")
            return False
        names = Names(model)
        self._cast_inputs(model, names)
        self._cast_outputs(model, names)
        kept = self._keep_tables(model, names)
        for graph in graphs(model):
            for value in graph.initializers.values():
                if value.name not in kept:
                    _widen_initializer(value)
        inputs = {id(value) for value in model.graph.inputs}
        untouched = inputs | {id(value) for value in model.graph.outputs}
        for value in values:
            if id(value) not in untouched and value.name not in kept:
                value.type = ir.TensorType(ir.DataType.FLOAT)
        for node in nodes(model):
            if node.metadata_props.get("lucid_fx.pass") != self.name:
                _widen_attributes(node)
        ledger_of(model).note("half precision is computed in float32 inside")
        return True

    def _cast_inputs(self, model: ir.Model, names: Names) -> None:
        for value in model.graph.inputs:
            if value.dtype not in HALF or not (value.uses() or value.is_graph_output()):
                continue
            uses = list(value.uses())
            cast = self._cast(names, value, ir.DataType.FLOAT, f"{value.name}_wide")
            _insert_first(model.graph, cast)
            for use in uses:
                use.node.replace_input_with(use.idx, cast.outputs[0])

    def _cast_outputs(self, model: ir.Model, names: Names) -> None:
        for index, value in enumerate(list(model.graph.outputs)):
            name, dtype = value.name or "", value.dtype
            if dtype is None or dtype not in HALF or value.producer() is None:
                continue
            cast = self._cast(names, value, dtype, name)
            model.graph.append(cast)
            model.graph.outputs[index] = cast.outputs[0]
            if not value.is_graph_output():
                value.name = names.fresh(f"{name}_wide")
                value.type = ir.TensorType(ir.DataType.FLOAT)
            cast.outputs[0].name = name

    def _keep_tables(self, model: ir.Model, names: Names) -> set[str]:
        """Let Gather read tables as they are, and widen what it gives."""
        kept: set[str] = set()
        for value in list(model.graph.initializers.values()):
            uses = list(value.uses())
            gathered = all(is_op(use.node, "Gather") and use.idx == 0 for use in uses)
            if value.dtype != ir.DataType.FLOAT16 or not uses or not gathered:
                continue
            kept.add(value.name or "")
            for use in uses:
                output = use.node.outputs[0]
                output.dtype = value.dtype
                readers = list(output.uses())
                cast = self._cast(names, output, ir.DataType.FLOAT, f"{output.name}_wide")
                use.node.append(cast)
                for reader in readers:
                    reader.node.replace_input_with(reader.idx, cast.outputs[0])
                kept.add(output.name or "")
        return kept

    def _cast(self, names: Names, value: ir.Value, dtype: ir.DataType, output: str) -> ir.Node:
        node = ir.node("Cast", [value], {"to": dtype.value})
        node.name = names.fresh(f"{value.name}_Cast")
        node.outputs[0].name = names.fresh(output)
        node.outputs[0].dtype, node.outputs[0].shape = dtype, value.shape
        return mark(node, self.name, [])


def _half_values(model: ir.Model) -> list[ir.Value]:
    found: dict[int, ir.Value] = {}
    for graph in graphs(model):
        values = (*graph.inputs, *graph.outputs, *(v for node in graph for v in node.outputs))
        found |= {id(v): v for v in (*graph.initializers.values(), *values) if v.dtype in HALF}
    return list(found.values())


def _gains(node: ir.Node) -> bool:
    """Whether the node computes in half precision where only float32 has a kernel."""
    heavy = is_op(node, "Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN")
    bfloat = any(v is not None and v.dtype == ir.DataType.BFLOAT16 for v in node.inputs)
    return bfloat or (heavy and any(v.dtype in HALF for v in node.outputs))


def _obstacle(model: ir.Model, values: list[ir.Value]) -> str | None:
    for node in nodes(model):
        touches = any(v is not None and v.dtype in HALF for v in (*node.inputs, *node.outputs))
        if touches and node.domain not in (*ONNX_DOMAINS, CONTRIB):
            return f"the op {node.domain}.{node.op_type} is not known ({node.name})"
        if touches and is_op(node, *_EXACT_BITS):
            return f"{node.op_type} reads its bits ({node.name})"
        if any(v.type is None and v.name for v in node.outputs):
            return f"the type of {node.outputs[0].name} is not known"
    if any(not isinstance(value.type, ir.TensorType) for value in values):
        return "it has half-precision sequences"
    if any(value.is_graph_input() and value.is_graph_output() for value in values):
        return "an input is an output, too"
    return None


def _widen_initializer(value: ir.Value) -> None:
    tensor = value.const_value
    if tensor is None or tensor.dtype not in HALF or value.is_graph_output():
        return
    array = tensor.numpy().astype(np.float32)
    value.const_value = ir.tensor(array, name=value.name)
    value.type = ir.TensorType(ir.DataType.FLOAT)


def _widen_attributes(node: ir.Node) -> None:
    for name, attr in list(node.attributes.items()):
        if name in _TYPE_ATTRIBUTES and attr.type == ir.AttributeType.INT:
            if attr.as_int() in [dtype.value for dtype in HALF]:
                node.attributes[name] = ir.AttrInt64(name, ir.DataType.FLOAT.value)
        elif attr.type == ir.AttributeType.TENSOR and attr.as_tensor().dtype in HALF:
            array = attr.as_tensor().numpy().astype(np.float32)
            node.attributes[name] = ir.AttrTensor(name, ir.tensor(array))


def _insert_first(graph: ir.Graph, node: ir.Node) -> None:
    first = next(iter(graph), None)
    if first is None:
        graph.append(node)
    else:
        graph.insert_before(first, node)
