"""Make the mean of each channel of some values a graph output."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.provenance import mark
from lucid_fx.ir.walk import opset, rank
from lucid_fx.passes.pipeline import GraphPass

AXES_INPUT_OPSET = 18
"""First ONNX operator set whose ReduceMean takes the axes as an input."""


@dataclass(frozen=True)
class TapChannelMeans(GraphPass):
    """Add a ReduceMean over all axes but the channels' behind each value, as a graph output.

    ``y = Relu (x)`` → the same and ``"lucid_fx/y/channel_mean" = ReduceMean <axes = [0,2,3]> (y)``
    as an output; values inside bodies, which cannot be outputs, stay alone.

    Attributes:
        values: value name → channel axis.
    """

    values: dict[str, int] = field(default_factory=dict)

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place; output ``<value>`` gets the means under the name of `mean_name`."""
        names, graph, changed = Names(model), model.graph, False
        found = [*graph.inputs, *(value for node in graph for value in node.outputs)]
        for value in found:
            dims = rank(value)
            if value.name not in self.values or not dims:
                continue
            axis = self.values[value.name] % dims
            axes = [at for at in range(dims) if at != axis]
            node = self._reduce(model, names, value, axes)
            node.name = names.fresh(f"{value.name}_ChannelMean")
            node.outputs[0].name = mean_name(value.name)
            node.outputs[0].type, node.outputs[0].shape = value.type, ir.Shape([None])
            producer = value.producer()
            mark(node, self.name, [] if producer is None else [producer])
            graph.append(node)
            graph.outputs.append(node.outputs[0])
            changed = True
        return changed

    def _reduce(self, model: ir.Model, names: Names, value: ir.Value, axes: list[int]) -> ir.Node:
        if opset(model) < AXES_INPUT_OPSET:
            return ir.node("ReduceMean", [value], {"axes": axes, "keepdims": 0})
        name = names.fresh(f"{value.name}_mean_axes")
        tensor = ir.tensor(axes, dtype=ir.DataType.INT64, name=name)
        constant = ir.Value(name=name, const_value=tensor)
        model.graph.register_initializer(constant)
        return ir.node("ReduceMean", [value, constant], {"keepdims": 0})


def mean_name(value: str) -> str:
    """The graph output that holds the channel means of a value; models do not name theirs so."""
    return f"lucid_fx/{value}/channel_mean"
