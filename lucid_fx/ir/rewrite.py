"""Small moves that most rewrites are made of."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from lucid_fx.ir.walk import graphs, nodes


def take_place(node: ir.Node, values: Sequence[ir.Value]) -> None:
    """Let ``values`` stand for the outputs of ``node``, names included, and remove the node.

    Graph outputs keep their names, so the interface of the model does not change.
    """
    for old, new in zip(node.outputs, values, strict=True):
        hand_over(old, new)
    remove(node)


def hand_over(old: ir.Value, new: ir.Value) -> None:
    """Give ``new`` all uses of ``old``, its name, and its type and shape where unknown."""
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.type = new.type if new.type is not None else old.type
    new.shape = new.shape if new.shape is not None else old.shape
    name = old.name
    old.name = f"{name}~replaced"
    new.name = name


def bypass(node: ir.Node, source: ir.Value) -> bool:
    """Remove a node whose first output equals ``source``; False where the interface forbids it."""
    output = node.outputs[0]
    if output.is_graph_output():
        producer = source.producer()
        if producer is None or source.is_graph_output() or producer.graph is not node.graph:
            return False
        name = output.name
        output.replace_all_uses_with(source, replace_graph_outputs=True)
        output.name = f"{name}~replaced"
        source.name = name
    else:
        output.replace_all_uses_with(source)
    remove(node)
    return True


def remove(node: ir.Node) -> None:
    """Remove a node that nobody uses any more."""
    graph = node.graph
    assert graph is not None
    graph.remove(node, safe=True)


def forget_dead_uses(model: ir.Model) -> None:
    """Cut what bodies of removed If, Loop and Scan nodes still hold, so that uses() is true."""
    alive = {id(node) for node in nodes(model)}
    for graph in graphs(model):
        values = [*graph.inputs, *graph.initializers.values()]
        for value in (*values, *(v for node in graph for v in node.outputs)):
            for use in list(value.uses()):
                if id(use.node) not in alive:
                    use.node.replace_input_with(use.idx, None)
