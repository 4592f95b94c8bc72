"""Put values on their grids: Q/DQ pairs around every node that computes on codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.walk import attribute, constant, graphs, input_at, is_constant, is_op, nodes
from lucid_fx.ops.row import OpRow
from lucid_fx.ops.table import find_row, only_moves
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.qdq import Codec
from lucid_fx.passes.weights import quantize_weight
from lucid_fx.quantization import (
    MinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    QParams,
    per_tensor_affine,
    quint8,
)
from lucid_fx.quantization.observers import ObserverFactory
from lucid_fx.target import TARGETS, Target


@dataclass(frozen=True)
class InsertQDQ(GraphPass):
    """Make the reference form: float ops between DequantizeLinear and QuantizeLinear.

    ``y = Conv (x, w)`` → ``y' = Conv (DQ(Q(x)), DQ(w_codes)); y = DQ(Q(y'))``; nodes that are not
    asked for stay, and read real values.

    Attributes:
        integer: nodes that compute on codes.
        grids: value name → grid, for every value that such a node reads or makes.
        weights: node name → factory of its weight observer.
        target: decides what weights must be proved safe against.
        means: value name → mean of each channel, for the correction of biases.
    """

    integer: frozenset[str] = field(default_factory=frozenset)
    grids: Mapping[str, QParams] = field(default_factory=dict)
    weights: Mapping[str, ObserverFactory] = field(default_factory=dict)
    target: Target = TARGETS["cpu-avx512vnni"]
    means: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        codec = Codec(model, Names(model), self.name)
        chosen = [node for node in nodes(model) if node.name in self.integer]
        for node in chosen:
            row = find_row(node)
            assert row is not None
            self._constants(codec, node, row)
        for value in self._coded_values(model):
            self._code(codec, value)
        for node in chosen:
            if only_moves(node):
                ledger_of(model).record(node, "passed_through", "moves codes", self.name)
            else:
                ledger_of(model).record(node, "quantized", "computes on codes", self.name)
        return bool(chosen)

    def _coded_values(self, model: ir.Model) -> list[ir.Value]:
        """Values that are made or read on codes, in graph order."""
        found: dict[int, ir.Value] = {}
        for graph in graphs(model):
            for value in (*graph.inputs, *(v for node in graph for v in node.outputs)):
                if (
                    value.name in self.grids
                    and not is_constant(value)
                    and (
                        self._on_codes(value)
                        or any(self._reads_codes(u.node, u.idx) for u in value.uses())
                    )
                ):
                    found[id(value)] = value
        return list(found.values())

    def _on_codes(self, value: ir.Value) -> bool:
        producer = value.producer()
        return producer is not None and producer.name in self.integer

    def _reads_codes(self, node: ir.Node, index: int) -> bool:
        row = find_row(node)
        return node.name in self.integer and row is not None and index in row.data(node)

    def _code(self, codec: Codec, value: ir.Value) -> None:
        """Q behind the producer; a DQ for each reader on codes, and for all when made on codes."""
        uses, output = list(value.uses()), value.is_graph_output()
        codes, grid = codec.encode(value, self.grids[value.name or ""])
        made_on_codes = self._on_codes(value)
        for use in uses:
            if is_op(use.node, "Shape", "Size"):
                use.node.replace_input_with(use.idx, codes)
            elif made_on_codes or self._reads_codes(use.node, use.idx):
                real = codec.decode(codes, grid, use.node, value)
                use.node.replace_input_with(use.idx, real)
        if output and made_on_codes:
            codec.decode_output(codes, grid, value)

    def _constants(self, codec: Codec, node: ir.Node, row: OpRow) -> None:
        if row.weight is not None:
            self._weight(codec, node, row)
            return
        for index in row.data(node):
            array = constant(input_at(node, index))
            if array is not None:
                observer = MinMaxObserver(per_tensor_affine, quint8)
                observer.forward(array)
                codec.constant_input(node, index, array, observer.qparams())

    def _weight(self, codec: Codec, node: ir.Node, row: OpRow) -> None:
        assert row.weight is not None
        weight = constant(node.inputs[row.weight])
        assert weight is not None
        axis = row.weight_axis(node)
        weight, bias = _plain(node, weight, constant(input_at(node, row.bias or 99)), axis)
        source = self.grids[node.inputs[0].name or ""]  # type: ignore[union-attr]
        mean = self.means.get(node.inputs[0].name or "")  # type: ignore[union-attr]
        if bias is None and row.bias is not None and mean is not None:
            bias = np.zeros(weight.shape[axis], np.float32)
            node.resize_inputs(row.bias + 1)
        result = quantize_weight(
            node, weight, axis, self._observer(node), bias=bias, input_mean=mean,
            input_scale=float(source.scale), saturates=self.target.saturates,
        )  # fmt: skip
        for repair in result.repairs:
            ledger_of(codec.model).note(f"{node.name}: {repair}")
        codec.coded_input(node, row.weight, result.codes, result.qparams)
        if result.bias is not None and row.bias is not None:
            scale = np.asarray(source.scale * result.qparams.scale, np.float32)
            codec.bias_input(node, row.bias, result.bias, scale)

    def _observer(self, node: ir.Node) -> ObserverBase:
        factory = self.weights.get(node.name or "")
        return factory() if factory is not None else PerChannelMinMaxObserver()


def _plain(
    node: ir.Node, weight: NDArray[Any], bias: NDArray[Any] | None, axis: int
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Weight and bias with Gemm's alpha and beta folded in, the bias one for each channel."""
    if bias is not None:
        bias = bias * attribute(node, "beta", 1.0) if is_op(node, "Gemm") else bias
        bias = np.broadcast_to(bias.reshape(-1), (weight.shape[axis],))
    if is_op(node, "Gemm"):
        weight = weight * np.asarray(attribute(node, "alpha", 1.0), weight.dtype)
        for name in ("alpha", "beta"):
            node.attributes.pop(name, None)
    return weight, bias
