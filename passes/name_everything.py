"""Give every node and value a name that is unique in the whole model."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.walk import graphs
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class NameEverything(GraphPass):
    """Name what has no name, and rename what shares one, across all bodies.

    ``Relu (x)`` without a name → ``Relu_y`` after its output; the names of the main graph's inputs
    and outputs, and names that are unique already, stay.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        used: set[str] = set()
        kept = [*model.graph.inputs, *model.graph.outputs, *model.graph.initializers.values()]
        kept_ids = {id(value) for value in kept}
        used.update(value.name for value in kept if value.name)
        changed = False
        for graph in graphs(model):
            values = [v for v in graph.inputs if id(v) not in kept_ids]
            if graph is not model.graph:
                values += [v for v in graph.initializers.values() if id(v) not in kept_ids]
            values += [v for node in graph for v in node.outputs if id(v) not in kept_ids]
            for value in values:
                if value.name == "" and not value.uses():
                    continue  # an optional output that is omitted
                changed |= _rename(value, value.name or "value", used)
        names: set[str] = set()
        for graph in graphs(model):
            for node in graph:
                output = next((v.name for v in node.outputs if v.name), "")
                changed |= _rename(node, node.name or f"{node.op_type}_{output}", names)
        return changed


def _rename(thing: ir.Value | ir.Node, wanted: str, used: set[str]) -> bool:
    name, count = wanted, 0
    while name in used:
        count += 1
        name = f"{wanted}_{count}"
    used.add(name)
    if thing.name == name:
        return False
    thing.name = name
    return True
