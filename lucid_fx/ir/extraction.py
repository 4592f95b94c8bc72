"""Parts of a graph as models of their own, and a graph cut open at some of its values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.walk import is_constant


def reads(node: ir.Node) -> Iterator[ir.Value]:
    """What a node of a graph reads, and what its bodies read from outside."""
    yield from (value for value in node.inputs if value is not None)
    for attr in node.attributes.values():
        if attr.type == ir.AttributeType.GRAPH:
            bodies = [attr.as_graph()]
        elif attr.type == ir.AttributeType.GRAPHS:
            bodies = list(attr.as_graphs())
        else:
            continue
        for body in bodies:
            inside = {id(v) for n in body for v in n.outputs}
            inside |= {id(v) for v in (*body.inputs, *body.initializers.values())}
            outer = [v for n in body for v in reads(n)] + list(body.outputs)
            yield from (v for v in outer if v is not None and id(v) not in inside)


def computed(model: ir.Model) -> dict[str, ir.Value]:
    """Values of the main graph that are known at run time only: inputs, and outputs of nodes."""
    found = {v.name: v for v in model.graph.inputs if v.name and v.const_value is None}
    return found | {v.name: v for node in model.graph for v in node.outputs if v.name}


def extract(model: ir.Model, given: Mapping[str, str], wanted: Sequence[str]) -> ir.Model:
    """A model of the nodes that lead from some values to others; the weights are shared.

    Args:
        model: not changed.
        given: value → name of the graph input that its readers take it from instead.
        wanted: values that become the outputs, in this order; a value that is also ``given`` is
            computed, as its input has another name.

    Returns:
        A model without the nodes, initializers and inputs that nothing wanted depends on.
    """
    values = computed(model)
    cut = {id(values[name]) for name in given}
    alive, read = _leading_to([values[name] for name in wanted], cut)
    made = {id(value) for node in alive for value in node.outputs}
    view = ir.GraphView(
        [v for v in read if not is_constant(v) and id(v) not in made],
        [values[name] for name in wanted],
        nodes=[node for node in model.graph if node in alive],
        initializers=[v for v in read if is_constant(v)],
        opset_imports=dict(model.graph.opset_imports),
        name=model.graph.name,
    )
    part = ir.Model(view.clone(), ir_version=model.ir_version)
    part.metadata_props.update(model.metadata_props)
    copies = computed(part)
    for name, new_name in given.items():
        if name in copies:
            _take_from(part.graph, copies[name], new_name)
    return part


def _leading_to(
    wanted: Iterable[ir.Value], cut: set[int]
) -> tuple[set[ir.Node], dict[ir.Value, None]]:
    """The nodes that make some values, from the values in ``cut`` on, and what they read.

    What is wanted is computed even where it is cut; only its readers take it from elsewhere.
    """
    alive, read = set[ir.Node](), dict[ir.Value, None]()
    producers = [(value, value.producer()) for value in wanted]
    read.update((value, None) for value, producer in producers if producer is None)
    stack = [producer for _, producer in producers if producer is not None]
    while stack:
        node = stack.pop()
        if node in alive:
            continue
        alive.add(node)
        for value in reads(node):
            read[value] = None
            producer = value.producer()
            if producer is not None and id(value) not in cut:
                stack.append(producer)
    return alive, read


def _take_from(graph: ir.Graph, value: ir.Value, name: str) -> None:
    """Let the readers of a value take it from a graph input of that name."""
    if value.is_graph_input():
        value.name = name
        return
    source = ir.Value(name=name, type=value.type, shape=value.shape)
    outputs = list(graph.outputs)
    value.replace_all_uses_with(source, replace_graph_outputs=True)
    graph.outputs.clear()
    graph.outputs.extend(outputs)
    graph.inputs.append(source)
    if value.name == name:
        value.name = f"{name}~made"


@dataclass(frozen=True)
class Segment:
    """A stretch of a graph.

    Attributes:
        given: values that it reads, made by earlier segments or graph inputs.
        group: values that it makes for the caller.
        across: values that it makes for later segments, some of the group perhaps among them.
    """

    given: tuple[str, ...]
    group: tuple[str, ...]
    across: tuple[str, ...]


def segments(model: ir.Model, groups: Sequence[Sequence[str]]) -> list[Segment]:
    """Stretches that make one group of values after the other; no node is in two of them.

    Nodes that no group depends on are in none. A value whose type is not known does not go from one
    stretch to another: what makes it is computed again.

    Args:
        model: its main graph is cut.
        groups: names of values, in an order in which they can be computed.
    """
    values, made = computed(model), dict[str, int]()
    made |= {v.name or "": -1 for v in model.graph.inputs if v.const_value is None}
    reading = [_stretch([values[n] for n in group], made, at) for at, group in enumerate(groups)]
    across: list[set[str]] = [set() for _ in groups]
    for name in (name for given in reading for name in given if made[name] >= 0):
        across[made[name]].add(name)
    return [
        Segment(tuple(given), tuple(dict.fromkeys(group)), tuple(sorted(later)))
        for given, group, later in zip(reading, groups, across, strict=True)
    ]


def _stretch(wanted: Iterable[ir.Value], made: dict[str, int], at: int) -> list[str]:
    """What a stretch reads of earlier ones; ``made`` learns of the values that it makes."""
    given: dict[str, None] = {}
    new: dict[str, None] = {}
    seen, stack = set[int](), list(wanted)
    while stack:
        value = stack.pop()
        if id(value) in seen or is_constant(value):
            continue
        seen.add(id(value))
        name, producer = value.name or "", value.producer()
        if name in made and (producer is None or value.type is not None):
            given[name] = None
        elif producer is not None:
            new.update((v.name, None) for v in producer.outputs if v.name)
            stack.extend(reads(producer))
    for name in new:
        made.setdefault(name, at)
    return list(given)
