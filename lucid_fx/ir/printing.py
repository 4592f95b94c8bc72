"""ONNX text with a comment on each node: the pass that made it, and the nodes it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx_ir as ir

from lucid_fx.ir.naming import in_scope
from lucid_fx.ir.provenance import PASS_KEY, origins
from lucid_fx.ir.walk import nodes

_NAMED = re.compile(r'^\s*\[("(?:[^"\\]|\\.)*"|[^\]"]+)\] ')
"""The start of the line of a named node."""


def annotated_text(model: ir.Model, *, weights: bool = True) -> str:
    """Deterministic ONNX text, which `from_text` reads back; provenance stands in comments.

    Args:
        model: not changed.
        weights: write the values of initializers; otherwise only their types and shapes, for
            people: what is read back from that is no model that runs.
    """
    proto = ir.to_proto(model)
    if not weights:
        _declare_only(proto.graph)
    comments = _comments(model)
    lines = str(onnx.printer.to_text(proto)).split("\n")
    return "\n".join(_annotated(line, comments) for line in lines)


def scope_text(model: ir.Model, scope: str) -> str:
    """The lines of the nodes in a scope, by their own names and those of their source nodes."""
    wanted = {
        node.name
        for node in nodes(model)
        if any(in_scope(name, scope) for name in (node.name or "", *origins(node)))
    }
    lines = annotated_text(model, weights=False).split("\n")
    return "\n".join(line.strip() for line in lines if _name(line) in wanted)


def _declare_only(graph: onnx.GraphProto) -> None:
    given = {value.name for value in graph.input}
    for tensor in graph.initializer:
        if tensor.name not in given:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.value_info.append(info)
    del graph.initializer[:]
    for body in _bodies(graph):
        _declare_only(body)


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attr in node.attribute:
            yield from ([attr.g] if attr.type == onnx.AttributeProto.GRAPH else attr.graphs)


def _comments(model: ir.Model) -> dict[str, str]:
    found = {}
    for node in nodes(model):
        name = node.metadata_props.get(PASS_KEY)
        if name and node.name:
            sources = [source for source in origins(node) if source != node.name]
            found[node.name] = name + (f" of {_listed(sources)}" if sources else "")
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(" ".join(name.split()) for name in names)


def _annotated(line: str, comments: Mapping[str, str]) -> str:
    comment = comments.get(_name(line) or "")
    return f"{line}  # {comment}" if comment else line


def _name(line: str) -> str | None:
    """The name of the node that a line begins with."""
    found = _NAMED.match(line)
    if found is None:
        return None
    name = found[1]
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name.startswith('"') else name
