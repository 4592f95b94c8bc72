"""Where a node comes from: the pass that made it, and the source nodes it stands for."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

PASS_KEY = "lucid_fx.pass"
ORIGIN_KEY = "lucid_fx.origin"
_SEPARATOR = "\n"


def origins(node: ir.Node) -> tuple[str, ...]:
    """Names of the source nodes that ``node`` stands for; its own if it was never rewritten."""
    recorded = node.metadata_props.get(ORIGIN_KEY)
    if recorded is None:
        return (node.name,) if node.name else ()
    return tuple(recorded.split(_SEPARATOR)) if recorded else ()


def mark(node: ir.Node, pass_name: str, sources: Iterable[ir.Node]) -> ir.Node:
    """Record on a new node which pass made it and from which nodes; returns the node."""
    names = dict.fromkeys(name for source in sources for name in origins(source))
    node.metadata_props[PASS_KEY] = pass_name
    node.metadata_props[ORIGIN_KEY] = _SEPARATOR.join(names)
    return node
