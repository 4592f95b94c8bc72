"""diff(): what became of every node between two graphs, by the pass that did it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir

from lucid_fx.errors import ModelError
from lucid_fx.graph_module import GraphModule
from lucid_fx.ir.grids import code_grids
from lucid_fx.ir.ledger import METADATA_KEY, Ledger, ledger_of
from lucid_fx.ir.matching import GraphNode, Match, graph_nodes, match_graphs
from lucid_fx.ir.provenance import PASS_KEY
from lucid_fx.ir.serde import from_proto, load_model
from lucid_fx.ir.tables import html_table, text_table
from lucid_fx.ir.walk import graphs, nodes

Kind = Literal["same", "moved", "rewritten", "removed", "added"]


@dataclass(frozen=True)
class NodeChange:
    """Nodes of A and the nodes of B that stand for them.

    Attributes:
        kind: *same*; *moved* (the same op at another place: its neighbours differ); *rewritten*
            (other ops, or other attributes or constants); *removed* (B has nothing that stands
            for it); *added* (A has nothing it stands for).
        a, b: names of the nodes.
        a_ops, b_ops: their ops.
        passes: what made the nodes of B, as recorded in them.
        details: which attributes or constants differ.
    """

    kind: Kind
    a: tuple[str, ...]
    b: tuple[str, ...]
    a_ops: tuple[str, ...]
    b_ops: tuple[str, ...]
    passes: tuple[str, ...]
    details: str = ""


@dataclass(frozen=True)
class GridChange:
    """A tensor with its grid, scale and zero point, in A and in B; None where it has none."""

    tensor: str
    a: tuple[float, int] | None
    b: tuple[float, int] | None


@dataclass(frozen=True)
class GraphDiff:
    """How two graphs differ; every node of both is in exactly one of ``changes``.

    Attributes:
        changes: in the order of A, then the added nodes in that of B.
        grids: tensors whose grid differs.
        interface: graph inputs, outputs and operator sets that differ, in words.
    """

    changes: Sequence[NodeChange]
    grids: Sequence[GridChange]
    interface: Sequence[str]

    def __bool__(self) -> bool:
        """Whether there is any difference."""
        return any(c.kind != "same" for c in self.changes) or bool(self.grids or self.interface)

    def of(self, kind: Kind) -> list[NodeChange]:
        """The changes of one kind."""
        return [change for change in self.changes if change.kind == kind]

    def counts(self) -> dict[str, int]:
        """Number of changes by kind."""
        return {kind: len(self.of(kind)) for kind in _KINDS}

    def to_json(self) -> str:
        """Everything as JSON text."""
        report = {
            "counts": self.counts(),
            "changes": [asdict(c) for c in self.changes if c.kind != "same"],
            "grids": [asdict(grid) for grid in self.grids],
            "interface": list(self.interface),
        }
        return json.dumps(report, indent=1)

    def text(self, rows: int = 40) -> str:
        """The differences as lines; lists longer than ``rows`` are cut, with a count."""
        if not self:
            return f"no difference ({len(self.changes)} nodes)"
        counts = ", ".join(f"{count} {kind}" for kind, count in self.counts().items() if count)
        lines = [counts, *self.interface]
        for kind in _KINDS[1:]:
            found = self.of(kind)
            if found:
                cells = [["A", "", "B", "pass"], *map(_cells, found[:rows])]
                lines += ["", kind, *text_table(cells), *_more(len(found), rows)]
        if self.grids:
            cells = [["tensor", "grid in A", "grid in B"], *map(_grid_cells, self.grids[:rows])]
            lines += ["", "grids", *text_table(cells), *_more(len(self.grids), rows)]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        head = ["kind", "A", "", "B", "pass"]
        cells = [[c.kind, *_cells(c)] for c in self.changes if c.kind != "same"]
        return html_table([head, *cells], "nodes") + html_table(
            [["tensor", "grid in A", "grid in B"], *map(_grid_cells, self.grids)], "grids"
        )


_KINDS: tuple[Kind, ...] = ("same", "moved", "rewritten", "removed", "added")


def diff(a: Any, b: Any) -> GraphDiff:
    """Compare two graphs, node by node; no weights are read, and external data may be missing.

    Nodes are aligned by the provenance that our passes record, then by names, then by structure:
    op, attributes and neighbours.

    Args:
        a, b: path of an ONNX file, protobuf, onnx_ir model or `GraphModule`; of any origin.

    Raises:
        ModelError: not a model.
    """
    first, second = _model(a), _model(b)
    nodes_a, nodes_b = graph_nodes(first), graph_nodes(second)
    matches = match_graphs(nodes_a, nodes_b)
    told = _Told(second)
    changes = [_change(match, nodes_a, nodes_b, told) for match in matches]
    return GraphDiff(changes, _grids(first, second), _interface(first, second))


def _model(given: Any) -> ir.Model:
    if isinstance(given, GraphModule):
        return given.model
    if isinstance(given, ir.Model):
        return given
    if isinstance(given, str | Path):
        return load_model(given, need_data=False)
    if hasattr(given, "SerializeToString"):
        return from_proto(given)
    raise ModelError(
        f"cannot take a model from {type(given).__name__}",
        hint="give a path, an onnx.ModelProto, an onnx_ir.Model or a GraphModule",
    )


class _Told:
    """What a model says of the nodes it was made from: its ledger, and its constants."""

    def __init__(self, model: ir.Model) -> None:
        self.ledger = Ledger()
        try:
            stored = model.metadata_props.get(METADATA_KEY)
            self.ledger = Ledger.from_json(stored) if stored else ledger_of(model)
        except (ValueError, KeyError, TypeError):
            pass  # it is a hint, not a need
        self.constants = {n for graph in graphs(model) for n in graph.initializers}
        self.ours = bool(self.ledger) or any(PASS_KEY in n.metadata_props for n in nodes(model))

    def passes(self, nodes: Sequence[GraphNode]) -> list[str]:
        """Passes that the ledger names for source nodes."""
        sources = [s for node in nodes for s in node.sources if s in self.ledger]
        return [self.ledger[s].pass_name for s in sources]

    def why_gone(self, node: GraphNode) -> tuple[str, str]:
        """The pass that removed a node, and the reason, as far as known."""
        for source in node.sources:
            if source in self.ledger:
                return self.ledger[source].pass_name, self.ledger[source].reason
        if node.op == "Constant" and self.constants.intersection(node.outputs):
            return "lift-constants", "it is a constant of the model"
        if node.op == "Constant" and self.ours:
            return "lift-constants", "nothing reads it any more"
        return "", ""


def _change(
    match: Match,
    nodes_a: Mapping[str, GraphNode],
    nodes_b: Mapping[str, GraphNode],
    told: _Told,
) -> NodeChange:
    a, b = [nodes_a[key] for key in match.a], [nodes_b[key] for key in match.b]
    kind, details = _kind(a, b, match)
    passes = [*told.passes(a), *(node.pass_name for node in b)]
    if kind == "same":
        passes = []
    elif kind == "removed":
        name, details = told.why_gone(a[0])
        passes = [name]
    made = tuple(dict.fromkeys(filter(None, passes)))
    if not made and told.ours and details.endswith("is now constant"):
        made = ("lift-constants",)  # it leaves no mark on the readers
    return NodeChange(
        kind, match.a, match.b, tuple(n.op for n in a), tuple(n.op for n in b), made, details
    )


def _kind(a: list[GraphNode], b: list[GraphNode], match: Match) -> tuple[Kind, str]:
    if not b:
        return "removed", ""
    if not a:
        return "added", ""
    if len(a) > 1 or len(b) > 1 or a[0].op != b[0].op:
        return "rewritten", ""
    details = a[0].differs(b[0])
    if details:
        return "rewritten", details
    return ("same", "") if match.neighbours else ("moved", "")


def _grids(a: ir.Model, b: ir.Model) -> list[GridChange]:
    first, second = code_grids(a), code_grids(b)
    found = []
    for name in dict.fromkeys((*first, *second)):
        one, two = ((g.scale, g.zero_point) if (g := of.get(name)) else None
                    for of in (first, second))  # fmt: skip
        if one != two:
            found.append(GridChange(name, one, two))
    return found


def _interface(a: ir.Model, b: ir.Model) -> list[str]:
    lines = []
    for what in ("inputs", "outputs"):
        one, two = ([_value(v) for v in getattr(m.graph, what)] for m in (a, b))
        lines += [f"{what}: only in A: {text}" for text in one if text not in two]
        lines += [f"{what}: only in B: {text}" for text in two if text not in one]
    opsets_a, opsets_b = a.graph.opset_imports, b.graph.opset_imports
    for domain in sorted({*opsets_a, *opsets_b}):
        first, second = (opsets.get(domain, "none") for opsets in (opsets_a, opsets_b))
        if first != second:
            lines.append(f"operator set {domain or 'ai.onnx'}: {first} in A, {second} in B")
    return lines


def _value(value: ir.Value) -> str:
    shape = "?" if value.shape is None else ", ".join(map(str, value.shape))
    return f"{value.name}: {value.dtype}[{shape}]"


def _cells(change: NodeChange) -> list[str]:
    made = "; ".join(filter(None, [", ".join(change.passes), change.details]))
    return [_told(change.a, change.a_ops), "→" if change.a and change.b else "",
            _told(change.b, change.b_ops), made]  # fmt: skip


def _told(names: Sequence[str], ops: Sequence[str], shown: int = 3) -> str:
    parts = [f"{name} ({op})" for name, op in zip(names, ops, strict=True)]
    more = f" and {len(parts) - shown} more" if len(parts) > shown else ""
    return ", ".join(parts[:shown]) + more


def _grid_cells(change: GridChange) -> list[str]:
    def told(grid: tuple[float, int] | None) -> str:
        return "none" if grid is None else f"{grid[0]:.6g} from {grid[1]}"

    return [change.tensor, told(change.a), told(change.b)]


def _more(count: int, rows: int) -> list[str]:
    return [f"  and {count - rows} more (--json shows all)"] if count > rows else []
