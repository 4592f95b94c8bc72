"""Unique names, scopes of names, and near matches for names that match nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from lucid_fx.ir.walk import graphs, nodes

_SCOPE_MARKS = ("/", ".")


class Names:
    """All value and node names of a model, across its bodies; hands out fresh ones."""

    def __init__(self, model: ir.Model) -> None:
        self._used: set[str] = set()
        for graph in graphs(model):
            self._used.update(value.name for value in graph.inputs if value.name)
            self._used.update(graph.initializers)
        for node in nodes(model):
            self._used.add(node.name or "")
            self._used.update(value.name for value in node.outputs if value.name)

    def fresh(self, wanted: str) -> str:
        """``wanted``, or with a number behind it where it is taken."""
        name, count = wanted, 0
        while name in self._used:
            count += 1
            name = f"{wanted}_{count}"
        self._used.add(name)
        return name


def in_scope(name: str, scope: str) -> bool:
    """Whether a node name is ``scope`` or lies inside it (``/`` and ``.`` separate scopes)."""
    return name == scope or any(
        name.startswith((scope + mark, mark + scope + mark)) or name == mark + scope
        for mark in _SCOPE_MARKS
    )


def scopes(name: str) -> Iterator[str]:
    """The scopes that hold a node, outermost first."""
    for at, mark in enumerate(name):
        if mark in _SCOPE_MARKS and at:
            yield name[:at]


def near_matches(name: str, known: Iterable[str], count: int = 3) -> str:
    """``'did you mean …?'`` with the nearest known names, or the first few of them."""
    known = sorted(set(known))
    close = difflib.get_close_matches(name, known, n=count, cutoff=0.5)
    if close:
        return "did you mean " + ", ".join(repr(found) for found in close) + "?"
    shown = ", ".join(repr(found) for found in known[:count])
    return f"known are {shown}, …" if len(known) > count else f"known are {shown or 'none'}"
