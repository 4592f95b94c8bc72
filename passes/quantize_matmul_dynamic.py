"""Matrix products with integer weights whose activations are quantized at run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import remove, take_place
from lucid_fx.ir.walk import attribute, constant, input_at, is_op, nodes, only_consumer
from lucid_fx.ops.emit import CONTRIB, Emit
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.weights import QuantizedWeight, quantize_weight
from lucid_fx.quantization import PerChannelMinMaxObserver
from lucid_fx.quantization.observers import ObserverFactory
from lucid_fx.target import TARGETS, Target


@dataclass(frozen=True)
class QuantizeMatMulDynamic(GraphPass):
    """Keep accuracy where no static grid fits: the range of each call decides the grid.

    ``t = MatMul (x, w); y = Add (t, b)`` → ``y = DynamicQuantizeMatMul (x, w_codes, s, z, b)``, or
    for the portable form DynamicQuantizeLinear → MatMulInteger → Cast → Mul → Add, which
    onnxruntime fuses to the same; nodes that are not asked for stay.

    Attributes:
        dynamic: names of the MatMul and Gemm nodes.
        weights: node name → factory of its weight observer.
        target: decides what weights must be proved safe against.
        portable: write standard ONNX ops only.
    """

    dynamic: frozenset[str] = field(default_factory=frozenset)
    weights: Mapping[str, ObserverFactory] = field(default_factory=dict)
    target: Target = TARGETS["cpu-avx512vnni"]
    portable: bool = False

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            if node.name not in self.dynamic or not is_op(node, "MatMul", "Gemm"):
                continue
            weight, result = self._quantized(model, node)
            bias, last = _bias(node, weight)
            sources = tuple(dict.fromkeys((node, last)))
            emit = Emit(model, names, last, self.name, sources)
            output = (self._portable if self.portable else self._contrib)(emit, node, result, bias)
            for source in sources:
                ledger_of(model).record(
                    source, "quantized", "integer weights, activations quantized at run time",
                    self.name,
                )  # fmt: skip
            take_place(last, [output])
            if last is not node:
                remove(node)
            changed = True
        return changed

    def _quantized(self, model: ir.Model, node: ir.Node) -> tuple[NDArray[Any], QuantizedWeight]:
        weight = constant(node.inputs[1])
        assert weight is not None
        if is_op(node, "Gemm"):
            weight = weight.T if attribute(node, "transB", 0) else weight
            weight = weight * np.asarray(attribute(node, "alpha", 1.0), weight.dtype)
        factory = self.weights.get(node.name or "", PerChannelMinMaxObserver)
        result = quantize_weight(node, weight, 1, factory(), saturates=self.target.saturates)
        for repair in result.repairs:
            ledger_of(model).note(f"{node.name}: {repair}")
        return weight, result

    def _constants(
        self, emit: Emit, node: ir.Node, result: QuantizedWeight
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        base = node.inputs[1].name if node.inputs[1] is not None else node.name
        return (
            emit.constant(np.ascontiguousarray(result.codes), f"{base}_quantized"),
            emit.constant(result.qparams.scale, f"{base}_scale"),
            emit.constant(result.qparams.zero_point_codes(), f"{base}_zero_point"),
        )

    def _contrib(
        self, emit: Emit, node: ir.Node, result: QuantizedWeight, bias: ir.Value | None
    ) -> ir.Value:
        inputs = [node.inputs[0], *self._constants(emit, node, result), bias]
        return emit.op(
            "DynamicQuantizeMatMul", inputs, domain=CONTRIB, like=node.outputs[0],
            dtype=ir.DataType.FLOAT,
        )  # fmt: skip

    def _portable(
        self, emit: Emit, node: ir.Node, result: QuantizedWeight, bias: ir.Value | None
    ) -> ir.Value:
        codes, scale, zero_point = self._constants(emit, node, result)
        a, a_scale, a_zero = emit.ops("DynamicQuantizeLinear", [node.inputs[0]], outputs=3)
        like: dict[str, Any] = {"like": node.outputs[0]}
        product = emit.op(
            "MatMulInteger", [a, codes, a_zero, zero_point], dtype=ir.DataType.INT32, **like
        )
        real = emit.op("Cast", [product], {"to": 1}, dtype=ir.DataType.FLOAT, **like)
        step = emit.op("Mul", [a_scale, scale], dtype=ir.DataType.FLOAT)
        output = emit.op("Mul", [real, step], dtype=ir.DataType.FLOAT, **like)
        if bias is None:
            return output
        return emit.op("Add", [output, bias], dtype=ir.DataType.FLOAT, **like)


def _bias(node: ir.Node, weight: NDArray[Any]) -> tuple[ir.Value | None, ir.Node]:
    """The bias of one value a column, and the last node that it comes from.

    That is Gemm's C, or an Add of a constant vector that is the only reader of a MatMul.
    """
    columns = weight.shape[1]
    if is_op(node, "Gemm"):
        given, array = input_at(node, 2), constant(input_at(node, 2))
        if given is None or array is None:
            return None, node
        beta = np.asarray(attribute(node, "beta", 1.0), array.dtype)
        flat = np.broadcast_to((array * beta).reshape(-1), (columns,))
        name = f"{given.name}_{node.name}"
        tensor = ir.tensor(np.ascontiguousarray(flat), name=name)
        value = ir.Value(
            name=tensor.name, shape=ir.Shape(flat.shape), type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )  # fmt: skip
        assert isinstance(node.graph, ir.Graph)
        node.graph.register_initializer(value)
        return value, node
    reader = only_consumer(node.outputs[0])
    if reader is None or not is_op(reader, "Add") or reader.graph is not node.graph:
        return None, node
    other = reader.inputs[1] if reader.inputs[0] is node.outputs[0] else reader.inputs[0]
    array = constant(other) if other is not None else None
    if array is None or array.shape != (columns,):
        return None, node
    return other, reader
