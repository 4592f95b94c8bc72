"""LSTM with integer weights whose activations are quantized at run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import attribute, constant, input_at, is_op, nodes
from lucid_fx.ops.emit import CONTRIB, Emit
from lucid_fx.passes.pipeline import GraphPass
from lucid_fx.passes.weights import quantize_weight
from lucid_fx.quantization import PerChannelMinMaxObserver
from lucid_fx.quantization.observers import ObserverFactory
from lucid_fx.target import TARGETS, Target


@dataclass(frozen=True)
class QuantizeLSTMDynamic(GraphPass):
    """Weights in 8 bits per gate row, stored transposed as onnxruntime's op wants them.

    ``y = LSTM (x, w, r)`` → ``y = DynamicQuantizeLSTM (x, w', r', …)``; a batch-first LSTM, or one
    with computed weights, stays.

    Attributes:
        dynamic: names of the LSTM nodes.
        weights: node name → factory of its weight observer.
        target: decides what weights must be proved safe against.
    """

    dynamic: frozenset[str] = field(default_factory=frozenset)
    weights: Mapping[str, ObserverFactory] = field(default_factory=dict)
    target: Target = TARGETS["cpu-avx512vnni"]

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            if node.name not in self.dynamic or not is_op(node, "LSTM"):
                continue
            w, r = constant(node.inputs[1]), constant(node.inputs[2])
            if w is None or r is None or attribute(node, "layout", 0):
                ledger_of(model).record(
                    node, "float", "its weights are not constant, or it is batch-first", self.name
                )
                continue
            emit = Emit(model, names, node, self.name)
            grids = [self._weight(emit, node, array, k) for array, k in ((w, "W"), (r, "R"))]
            rest = [input_at(node, index) for index in range(3, 8)]
            inputs = [node.inputs[0], *(g[0] for g in grids), *rest, *grids[0][1:], *grids[1][1:]]
            attributes = {k: a for k, a in node.attributes.items() if k != "layout"}
            outputs = emit.ops(
                "DynamicQuantizeLSTM", inputs, attributes, domain=CONTRIB,
                outputs=len(node.outputs), dtype=ir.DataType.FLOAT,
            )  # fmt: skip
            ledger_of(model).record(
                node, "quantized", "integer weights, activations quantized at run time", self.name
            )
            take_place(node, outputs)
            changed = True
        return changed

    def _weight(
        self, emit: Emit, node: ir.Node, array: NDArray[Any], kind: str
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Codes [directions, inputs, 4·hidden] with scale and zero point for each gate row."""
        factory = self.weights.get(node.name or "", PerChannelMinMaxObserver)
        results = [
            quantize_weight(node, one.T, 1, factory(), saturates=self.target.saturates)
            for one in array
        ]
        base = f"{node.name}_{kind}"
        stack = [np.stack(parts) for parts in (
            [r.codes for r in results],
            [r.qparams.scale for r in results],
            [r.qparams.zero_point_codes() for r in results],
        )]  # fmt: skip
        codes, scale, zero = (
            emit.constant(np.ascontiguousarray(part), f"{base}_{what}")
            for part, what in zip(stack, ("quantized", "scale", "zero_point"), strict=True)
        )
        return codes, scale, zero
