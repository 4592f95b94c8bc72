"""GraphModule: a model that you can call, print, save and look into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import onnx_ir as ir

from lucid_fx.feeds import Feed, GraphInputs
from lucid_fx.ir.ledger import METADATA_KEY, Ledger, ledger_of
from lucid_fx.ir.printing import annotated_text
from lucid_fx.ir.saving import save_model
from lucid_fx.ir.serde import model_bytes, weight_bytes
from lucid_fx.ir.tables import html_table
from lucid_fx.ir.walk import nodes
from lucid_fx.runtime.session import Session


class GraphModule:
    """An ONNX graph with a ledger, callable like a function.

    Args:
        model: the onnx_ir model; kept, not copied.

    Example::

        gm = lucid_fx.trace("model.onnx")
        y = gm(x)                       # arrays in graph-input order
        outputs = gm.run({"x": x})      # by names
    """

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self._session: Session | None = None
        self._inputs: GraphInputs | None = None

    @property
    def ledger(self) -> Ledger:
        """What happened to every node of the traced model."""
        return ledger_of(self.model)

    @property
    def input_names(self) -> list[str]:
        """Names of the graph inputs, in order."""
        return [value.name or "" for value in self.model.graph.inputs]

    @property
    def output_names(self) -> list[str]:
        """Names of the graph outputs, in order."""
        return [value.name or "" for value in self.model.graph.outputs]

    @property
    def nbytes(self) -> int:
        """Bytes of the weights."""
        return weight_bytes(self.model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays in the order of the inputs, or by keyword.

        Returns:
            The output array, or a tuple of them where there are several.
        """
        outputs = tuple(self.run(self.feed(args, kwargs)).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Run on a name → array mapping; gives all outputs by name."""
        arrays = self.feed(feed)
        return dict(zip(self.output_names, self._run(arrays), strict=True))

    def _run(self, feed: Feed) -> list[Any]:
        return self.session().run(feed)

    def session(self) -> Session:
        """The session of this graph, opened at first use."""
        if self._session is None:
            self._session = Session(self.model)
        return self._session

    def feed(self, args: Any, kwargs: Mapping[str, Any] | None = None) -> Feed:
        """Check a sample against the graph inputs and give it as name → array.

        Args:
            args: an array (single-input models), a sequence in input order, or a mapping.
            kwargs: further inputs by name.

        Raises:
            DataError: an unknown or missing name, a wrong rank or dtype.
        """
        if self._inputs is None:
            self._inputs = GraphInputs(self.model.graph)
        return self._inputs.feed(args, kwargs)

    def changed(self) -> None:
        """Forget what was made of the graph before it changed: session and inputs."""
        self._session = self._inputs = None

    def clone(self) -> GraphModule:
        """An independent graph; weights are shared."""
        return type(self)(clone_model(self.model))

    def save(self, path: str | Path) -> None:
        """Write an ONNX file atomically, with the ledger in its metadata."""
        self.model.metadata_props[METADATA_KEY] = self.ledger.to_json()
        save_model(self.model, path)

    def to_proto(self) -> Any:
        """The model as ``onnx.ModelProto``."""
        return ir.to_proto(self.model)

    def to_bytes(self) -> bytes:
        """The model serialized, as it would be saved."""
        return model_bytes(self.model)

    def __str__(self) -> str:
        """ONNX text that `from_text` reads back, with the provenance of each node as a comment."""
        return annotated_text(self.model)

    def _repr_html_(self) -> str:
        ops = Counter(node.op_type for node in nodes(self.model))
        rows = [["op", "nodes"], *([op, str(count)] for op, count in ops.most_common())]
        weights = f"{self.nbytes:,} bytes of weights"
        return html_table(rows, f"{self!r}, {weights}") + self.ledger._repr_html_()

    def __repr__(self) -> str:
        count = sum(1 for _ in nodes(self.model))
        return f"<{type(self).__name__} {self.model.graph.name!r}: {count} nodes>"

    def named_modules(self) -> dict[str, list[str]]:
        """Scopes recovered from node names, each with the nodes right inside it."""
        scopes: dict[str, list[str]] = {}
        for node in nodes(self.model):
            name = (node.name or "").strip("/")
            scope = name.replace("/", ".").rpartition(".")[0]
            scopes.setdefault(scope, []).append(node.name or "")
        return scopes

    def to_networkx(self) -> nx.MultiDiGraph:
        """Nodes by name with their op; an edge for each value between them."""
        graph = nx.MultiDiGraph()
        for node in nodes(self.model):
            graph.add_node(node.name, op_type=node.op_type, domain=node.domain)
        for node in nodes(self.model):
            for value in node.inputs:
                producer = value.producer() if value is not None else None
                if value is not None and producer is not None:
                    graph.add_edge(producer.name, node.name, value=value.name)
        return graph


def clone_model(model: ir.Model) -> ir.Model:
    """An independent model that shares the weights, with a ledger of its own."""
    twin = model.clone()
    twin.meta[METADATA_KEY] = ledger_of(model).copy()
    return twin
