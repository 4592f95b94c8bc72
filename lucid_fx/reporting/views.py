"""Graphs as the report shows them: laid out, linked by provenance, collapsed by scope."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from lucid_fx.ir.extraction import reads
from lucid_fx.ir.provenance import PASS_KEY, origins
from lucid_fx.reporting.page import library

DEEPEST = 6
"""Levels of scopes that the report can collapse to."""

_STATUSES = ("refused", "float", "quantized", "fused", "passed_through", "")
"""The worst first: what a node shows that stands for several."""


@dataclass(frozen=True)
class Facts:
    """What is known of nodes.

    Attributes:
        status: by source node, as in the ledger.
        error: by source node, dB of signal to noise that its layer keeps by itself.
        time: by node of the view, microseconds a run.
        origins: by node of the view, source nodes where its own metadata do not tell.
    """

    status: Mapping[str, str]
    error: Mapping[str, float]
    time: Mapping[str, float] = field(default_factory=dict)
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def view(title: str, model: ir.Model, facts: Facts) -> dict[str, Any]:
    """A graph as JSON-safe data: its nodes, and a drawing for each level of collapsing.

    The first level has one box for each node of the main graph; nodes of bodies belong to the
    node that holds them.

    Raises:
        ConfigError: the library that lays graphs out is not installed.
    """
    every = list(model.graph)
    told = [_told(node, facts) for node in every]
    at = {node: i for i, node in enumerate(every)}
    makers = [(value.producer(), reader) for reader in every for value in reads(reader)]
    edges = sorted({(at[maker], at[reader]) for maker, reader in makers if maker in at})
    levels = [_level([(one["name"], [i]) for i, one in enumerate(told)], edges, 0)]
    for depth in range(1, DEEPEST + 1):
        boxes = _collapsed(told, edges, depth)
        if len(boxes) < len(told) and len(boxes) != len(levels[-1]["names"]):
            levels.append(_level(boxes, edges, depth))
    return {"title": title, "nodes": told, "levels": levels}


def _told(node: ir.Node, facts: Facts) -> dict[str, Any]:
    name = node.name or ""
    inside = [
        inner for body in _bodies(node) for inner in ir.traversal.RecursiveGraphIterator(body)
    ]
    sources = dict.fromkeys(facts.origins.get(name) or origins(node))
    sources |= dict.fromkeys(source for inner in inside for source in origins(inner))
    states = [facts.status[source] for source in sources if source in facts.status]
    errors = [facts.error[source] for source in sources if source in facts.error]
    about = [f"made by {node.metadata_props[PASS_KEY]}"] if PASS_KEY in node.metadata_props else []
    about += [f"{len(inside)} nodes in its bodies"] if inside else []
    about += [f"in {_value(value)}" for value in node.inputs if value is not None]
    about += [f"out {_value(value)}" for value in node.outputs]
    return {
        "op": node.op_type,
        "name": name,
        "origins": list(sources),
        "status": min(states, key=_STATUSES.index, default=""),
        "error": min(errors, default=None),
        "time": facts.time.get(name),
        "about": about,
    }


def _bodies(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def _value(value: ir.Value) -> str:
    dtype = value.dtype.name.lower() if value.dtype is not None else ""
    shape = f"[{', '.join(map(str, value.shape))}]" if value.shape is not None else ""
    return f"{value.name} {dtype}{shape}".strip()


def scope_of(name: str, depth: int) -> str:
    """The first ``depth`` parts of a name without its last; empty where it has none."""
    return "/".join([part for part in re.split(r"[/.]", name) if part][:-1][:depth])


Box = tuple[str, list[int]]
"""The name of a node or scope, and the nodes that it stands for."""


def _collapsed(
    told: Sequence[dict[str, Any]], edges: list[tuple[int, int]], depth: int
) -> list[Box]:
    """One box for the nodes of a scope that hang together, and for each node without a scope."""
    scopes = [scope_of((one["origins"] or [one["name"]])[0], depth) for one in told]
    inside = [(a, b) for a, b in edges if scopes[a] and scopes[a] == scopes[b]]
    graph = library("igraph").Graph(len(told), inside)
    boxes, used = list[Box](), dict[str, int]()
    for group in sorted(graph.connected_components(), key=min):
        scope = scopes[group[0]]
        if len(group) == 1:
            boxes.append((told[group[0]]["name"], list(group)))
            continue
        used[scope] = used.get(scope, 0) + 1
        boxes.append((scope if used[scope] == 1 else f"{scope} ({used[scope]})", list(group)))
    return boxes


def _level(boxes: Sequence[Box], edges: list[tuple[int, int]], depth: int) -> dict[str, Any]:
    box_of = {node: i for i, (_, members) in enumerate(boxes) for node in members}
    between = sorted({(box_of[a], box_of[b]) for a, b in edges if box_of[a] != box_of[b]})
    return {
        "depth": depth,
        "names": [name for name, _ in boxes],
        "members": [members for _, members in boxes],
        "places": layout(len(boxes), between),
        "edges": between,
    }


def layout(count: int, edges: list[tuple[int, int]]) -> list[tuple[float, float]]:
    """Places of a layered drawing, one unit a layer; edges that close a cycle point up.

    The layers are igraph's, which puts a node as high as can be; one that would do as well or
    better beside its readers, as a constant does, goes down to them.
    """
    if not count:
        return []
    graph = library("igraph").Graph(count, edges, directed=True)
    layers = [int(y) for _, y in graph.layout_sugiyama(maxiter=1).coords]
    for node in sorted(range(count), key=layers.__getitem__, reverse=True):
        below = [layers[other] for other in graph.successors(node) if layers[other] > layers[node]]
        if below and graph.indegree(node) <= len(below):
            layers[node] = min(below) - 1
    places = graph.layout_sugiyama(layers=layers, maxiter=30, hgap=1, vgap=1).coords
    return _apart([(round(x, 2), y) for x, y in places[:count]])


def _apart(places: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same places with at least one unit between neighbours, which igraph may fall short of."""
    found, last = list(places), dict[float, float]()
    for i in sorted(range(len(places)), key=places.__getitem__):
        x, y = places[i]
        found[i] = max(x, last.get(y, x - 1) + 1), y
        last[y] = found[i][0]
    return found
