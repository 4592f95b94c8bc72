"""Put an Observe op beside every value whose range must be known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.provenance import mark
from lucid_fx.ir.walk import graphs
from lucid_fx.passes.pipeline import GraphPass

DOMAIN = "lucid_fx"


@dataclass(frozen=True)
class InsertObservers(GraphPass):
    """Tap values; nothing consumes an Observe, so the graph around it computes as before.

    ``y = Conv (x, w)`` → the same and ``_ = lucid_fx.Observe <key = "y"> (y)``; values that are not
    asked for get none.

    Attributes:
        observers: value name → attributes of its Observe node.
    """

    observers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, pending = Names(model), dict(self.observers)
        for graph in list(graphs(model)):
            values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
            taps = [
                self._tap(value, pending.pop(value.name), names)
                for value in values
                if value.name in pending
            ]
            # last value first: onnxruntime starts its order at the last sink, so each tap runs
            # right behind its producer, and no tensor is kept alive for it
            graph.extend(reversed(taps))
        if len(pending) < len(self.observers):
            model.graph.opset_imports.setdefault(DOMAIN, 1)
        return bool(self.observers)

    def _tap(self, value: ir.Value, attributes: Mapping[str, Any], names: Names) -> ir.Node:
        tap = ir.node("Observe", [value], dict(attributes), domain=DOMAIN)
        tap.name = names.fresh(f"{value.name}_observe")
        tap.outputs[0].name = names.fresh(f"{value.name}_observed")
        producer = value.producer()
        mark(tap, self.name, [] if producer is None else [producer])
        return tap
