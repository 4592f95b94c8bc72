"""Align the nodes of two graphs: by provenance, by names, and by structure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import networkx as nx
import onnx_ir as ir

from lucid_fx.ir.provenance import ORIGIN_KEY, PASS_KEY, origins
from lucid_fx.ir.walk import ONNX_DOMAINS, is_constant

HASHED_BYTES = 16 * 2**20
"""Constants in the model file up to this size are told apart by their bytes, others by shape."""

_ROUNDS = (3, 2, 1)
"""Steps to the farthest neighbours that structure is compared by, the most telling first."""


@dataclass(frozen=True, eq=False)
class GraphNode:
    """What alignment needs to know of a node.

    Attributes:
        key: its name where that is unique, else one made from its place.
        op: operator, with the domain where that is not ONNX's.
        sources: names of the nodes it stands for, its own where nothing is recorded.
        outputs: names of what it makes.
        producers: for each input: the key of the node that makes it, the name of a graph input, or
            None for a constant or an absent one.
        attributes: by name, as text; without bodies, whose nodes are nodes of their own.
        constants: by input index: dtype, shape, and hash where it is cheap.
        pass_name: the pass that made it, "" where none is recorded.
    """

    key: str
    op: str
    sources: tuple[str, ...]
    outputs: tuple[str, ...]
    producers: tuple[str | None, ...]
    attributes: Mapping[str, str]
    constants: Mapping[int, tuple[str, str, str]]
    pass_name: str

    def differs(self, other: GraphNode) -> str:
        """What is unlike in attributes and constants, in words; "" for nothing."""
        told = []
        for name in sorted({*self.attributes, *other.attributes}):
            one, two = self.attributes.get(name), other.attributes.get(name)
            if one != two:
                told.append(f"{name} {one or 'unset'} → {two or 'unset'}")
        for index in sorted({*self.constants, *other.constants}):
            one_c, two_c = self.constants.get(index), other.constants.get(index)
            if one_c is None or two_c is None:
                told.append(f"input {index} is {'no longer' if one_c else 'now'} constant")
            elif one_c[:2] != two_c[:2]:
                told.append(f"input {index} {' '.join(one_c[:2])} → {' '.join(two_c[:2])}")
            elif one_c[2] and two_c[2] and one_c[2] != two_c[2]:
                told.append(f"input {index} has other values")
        return ", ".join(told)


@dataclass(frozen=True)
class Match:
    """Keys of nodes of A and B that stand for each other; ``neighbours``: they read the same."""

    a: tuple[str, ...]
    b: tuple[str, ...]
    neighbours: bool = False


def graph_nodes(model: ir.Model) -> dict[str, GraphNode]:
    """All nodes in order, those of bodies and local functions included."""
    every = list(_every_node(model))
    taken: dict[str, int] = {}
    for node in every:
        taken[node.name or ""] = taken.get(node.name or "", 0) + 1
    keys: dict[int, str] = {}
    used: set[str] = set()
    for node in every:
        key = node.name or ""
        if not key or taken[key] > 1:
            key = f"{node.op_type}:{next((v.name for v in node.outputs if v.name), '')}"
        count, base = 1, key
        while key in used:
            count += 1
            key = f"{base}#{count}"
        used.add(key)
        keys[id(node)] = key
    return {keys[id(node)]: _graph_node(node, keys) for node in every}


def _every_node(model: ir.Model) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)


def _graph_node(node: ir.Node, keys: Mapping[int, str]) -> GraphNode:
    domain = "" if node.domain in ONNX_DOMAINS else f"{node.domain}."
    key = keys[id(node)]
    recorded = ORIGIN_KEY in node.metadata_props
    constants: dict[int, tuple[str, str, str]] = {}
    producers: list[str | None] = []
    for index, value in enumerate(node.inputs):
        producer = value.producer() if value is not None else None
        if value is not None and is_constant(value):
            constants[index] = _constant(value.const_value)
            producers.append(None)
        elif producer is not None:
            producers.append(keys.get(id(producer)))
        else:
            producers.append(None if value is None else value.name)
    attributes = {
        name: _text(attr.value)
        for name, attr in node.attributes.items()
        if attr.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    }
    return GraphNode(
        key,
        domain + node.op_type,
        origins(node) if recorded else (key,),
        tuple(value.name or "" for value in node.outputs),
        tuple(producers),
        attributes,
        constants,
        node.metadata_props.get(PASS_KEY, ""),
    )


def _text(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return " ".join(filter(None, _constant(value)))
    return str(value)


def _constant(tensor: Any) -> tuple[str, str, str]:
    """Dtype, shape, and a hash of the bytes of what lies in the model file."""
    shape = f"[{', '.join(map(str, tensor.shape))}]"
    digest = ""
    if not isinstance(tensor, ir.ExternalTensor) and tensor.nbytes <= HASHED_BYTES:
        if tensor.dtype == ir.DataType.STRING:
            data = repr(tensor.numpy().tolist()).encode()
        else:
            data = tensor.tobytes()
        digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    return str(tensor.dtype), shape, digest


def match_graphs(a: Mapping[str, GraphNode], b: Mapping[str, GraphNode]) -> list[Match]:
    """Every node of both graphs in exactly one match, in the order of A, then of B."""
    links = nx.Graph()
    links.add_nodes_from(("a", key) for key in a)
    links.add_nodes_from(("b", key) for key in b)
    for key, node in a.items():
        twin = b.get(key)
        if twin is not None and (twin.op, twin.sources) == (node.op, node.sources):
            links.add_edge(("a", key), ("b", key))
    _link(links, _left(links, a, "a"), _left(links, b, "b"), lambda node: node.sources)
    _link(links, _left(links, a, "a"), _left(links, b, "b"), lambda node: node.outputs)
    readers_a, readers_b = _readers(a), _readers(b)
    _grow(links, (a, b), (readers_a, readers_b))
    for depth in _ROUNDS:
        if _link_by_structure(links, a, b, depth):
            _grow(links, (a, b), (readers_a, readers_b))
    order = {("a", key): at for at, key in enumerate(a)}
    order |= {("b", key): len(a) + at for at, key in enumerate(b)}
    parts = [sorted(part, key=order.__getitem__) for part in nx.connected_components(links)]
    parts.sort(key=lambda part: order[part[0]])
    group = {node: at for at, part in enumerate(parts) for node in part}
    found = []
    for part in parts:
        ones = tuple(key for side, key in part if side == "a")
        twos = tuple(key for side, key in part if side == "b")
        same = len(ones) == len(twos) == 1 and _reads(a[ones[0]], "a", group) == _reads(
            b[twos[0]], "b", group
        )
        found.append(Match(ones, twos, same))
    return found


def _reads(node: GraphNode, side: str, group: Mapping[Any, int]) -> list[Hashable]:
    """What a node reads, in terms of both graphs."""
    return [group.get((side, p), p) if p is not None else None for p in node.producers]


def _left(links: nx.Graph, of: Mapping[str, GraphNode], side: str) -> dict[str, GraphNode]:
    return {key: node for key, node in of.items() if not links.degree((side, key))}


Names = Callable[[GraphNode], tuple[str, ...]]


def _link(
    links: nx.Graph, a: Mapping[str, GraphNode], b: Mapping[str, GraphNode], names: Names
) -> None:
    """Link nodes that share a name of a kind."""
    owners: dict[str, list[str]] = {}
    for key, node in a.items():
        for name in filter(None, names(node)):
            owners.setdefault(name, []).append(key)
    for key, node in b.items():
        for name in names(node):
            links.add_edges_from((("a", owner), ("b", key)) for owner in owners.get(name, ()))


def _readers(graph: Mapping[str, GraphNode]) -> dict[str, list[str]]:
    """Producer → the nodes that read it."""
    readers: dict[str, list[str]] = {key: [] for key in graph}
    for key, node in graph.items():
        for producer in node.producers:
            if producer in readers:
                readers[producer].append(key)
    return readers


Two = tuple[Mapping[str, Any], Mapping[str, Any]]


def _grow(links: nx.Graph, graphs: Two, readers: Two) -> None:
    """Link the like neighbours of linked nodes, and theirs, as far as that goes."""
    stack = [(one[1], two[1]) if one[0] == "a" else (two[1], one[1]) for one, two in links.edges]
    while stack:
        pair = stack.pop()
        nodes = [graphs[at][pair[at]] for at in (0, 1)]
        sides: list[dict[Hashable, list[str]]] = []
        for at, side in enumerate("ab"):
            around: dict[Hashable, list[str]] = {}
            makers = [p for p in nodes[at].producers if p in graphs[at]]
            below = readers[at][pair[at]]
            for way, keys in (("maker", makers), ("reader", below)):
                for key in dict.fromkeys(keys):
                    if not links.degree((side, key)):
                        kind = way, graphs[at][key].op, _attributes(graphs[at][key])
                        around.setdefault(kind, []).append(key)
            sides.append(around)
        for around_a, ones in sides[0].items():
            twos = sides[1].get(around_a, [])
            if len(ones) == len(twos):
                links.add_edges_from((("a", x), ("b", y)) for x, y in zip(ones, twos, strict=True))
                stack += zip(ones, twos, strict=True)


def _attributes(node: GraphNode) -> Hashable:
    return tuple(sorted(node.attributes.items()))


def _link_by_structure(
    links: nx.Graph, a: Mapping[str, GraphNode], b: Mapping[str, GraphNode], depth: int
) -> bool:
    """Link nodes with the same op, attributes and neighbours up to ``depth`` steps away.

    Labels are refined as by Weisfeiler and Leman; linked nodes are known, and tell most.
    """
    left_a, left_b = _left(links, a, "a"), _left(links, b, "b")
    if not left_a or not left_b:
        return False
    known: dict[tuple[str, str], int] = {}
    for at, part in enumerate(nx.connected_components(links)):
        if len(part) > 1:
            known |= dict.fromkeys(part, at)
    classes: dict[Hashable, tuple[list[str], list[str]]] = {}
    for side, (graph, left) in enumerate(((a, left_a), (b, left_b))):
        labels = _labels(graph, "ab"[side], known, depth)
        for key in left:
            classes.setdefault(labels[key], ([], []))[side].append(key)
    new = [
        (("a", one), ("b", two))
        for ones, twos in classes.values()
        if len(ones) == len(twos)
        for one, two in zip(ones, twos, strict=True)
    ]
    links.add_edges_from(new)
    return bool(new)


def _labels(
    graph: Mapping[str, GraphNode], side: str, known: Mapping[tuple[str, str], int], depth: int
) -> dict[str, Hashable]:
    readers = _readers(graph)
    labels: dict[str, Hashable] = {
        key: hash((node.op, _attributes(node))) for key, node in graph.items()
    }
    fixed = {key: hash(("known", known[side, key])) for key in graph if (side, key) in known}
    labels |= fixed
    for _ in range(depth):
        fresh: dict[str, Hashable] = {}
        for key, node in graph.items():
            above = tuple(labels.get(p, p) if p is not None else None for p in node.producers)
            below = tuple(sorted(hash(labels[reader]) for reader in readers[key]))
            fresh[key] = hash((labels[key], above, below))
        labels = fresh | fixed
    return labels
