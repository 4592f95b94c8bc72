"""The rules of a legal graph, checked after every pass.

Each rule is a small function that yields complaints; `verify` raises on the first one.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from lucid_fx.errors import VerifyError
from lucid_fx.ir.walk import ONNX_DOMAINS, graphs, nodes


def verify(model: ir.Model, pass_name: str | None = None) -> None:
    """Raise `VerifyError` for the first rule that the model breaks.

    Args:
        model: the model, with its bodies.
        pass_name: the pass that ran last, named in the error.
    """
    for rule in (_node_names_unique, _values_defined_once, _inputs_reach, _domains_imported):
        for complaint, node in rule(model):
            raise VerifyError(
                complaint, node=node, pass_name=pass_name, hint="please report this defect"
            )


Complaints = Iterator[tuple[str, str | None]]


def _node_names_unique(model: ir.Model) -> Complaints:
    seen: set[str] = set()
    for node in nodes(model):
        if not node.name:
            yield f"a {node.op_type} node has no name", None
        elif node.name in seen:
            yield "two nodes have the same name", node.name
        seen.add(node.name or "")


def _values_defined_once(model: ir.Model) -> Complaints:
    seen: set[str] = set()
    for graph in graphs(model):
        inputs = {id(value) for value in graph.inputs}
        defined = list(graph.inputs)
        defined += [v for v in graph.initializers.values() if id(v) not in inputs]
        defined += [value for node in graph for value in node.outputs]
        for value in defined:
            if value.name and value.name in seen:
                producer = value.producer()
                yield (
                    f"value {value.name!r} is defined twice",
                    producer.name if producer is not None else None,
                )
            seen.add(value.name or "")


def _inputs_reach(model: ir.Model) -> Complaints:
    """Every input is defined before its use, in the same graph or an outer one."""
    yield from _reach(model.graph, set())


def _reach(graph: ir.Graph, outer: set[int]) -> Complaints:
    known = set(outer)
    known.update(id(value) for value in graph.inputs)
    known.update(id(value) for value in graph.initializers.values())
    for node in graph:
        for value in node.inputs:
            if value is not None and value.name != "" and id(value) not in known:
                yield f"input {value.name!r} is used before it is defined", node.name
        for attr in node.attributes.values():
            if attr.type == ir.AttributeType.GRAPH:
                yield from _reach(attr.as_graph(), known)
            elif attr.type == ir.AttributeType.GRAPHS:
                for body in attr.as_graphs():
                    yield from _reach(body, known)
        known.update(id(value) for value in node.outputs)
    for value in graph.outputs:
        if value is not None and id(value) not in known:
            yield f"graph output {value.name!r} is not produced", None


def _domains_imported(model: ir.Model) -> Complaints:
    imported = set(model.graph.opset_imports)
    for node in nodes(model):
        domains = ONNX_DOMAINS if node.domain in ONNX_DOMAINS else (node.domain,)
        if not imported.intersection(domains):
            yield f"domain {node.domain!r} of {node.op_type} is not imported", node.name
