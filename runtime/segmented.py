"""Runs a graph stretch by stretch: every node once, few intermediate tensors in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from lucid_fx.ir.extraction import Segment, extract, segments
from lucid_fx.runtime.session import Session

Finish = Callable[[ir.Model, int], None]
"""Changes the model of a stretch, by its number, before its session is opened."""


class SegmentedModel:
    """Gives groups of intermediate tensors, one group after the other.

    A tensor leaves memory when no later stretch reads it.

    Args:
        model: not changed.
        groups: names of values of the main graph, in an order in which they can be computed.
        finish: what to do with the model of each stretch.
        threads: intra-op threads, 0 for onnxruntime's choice.
    """

    def __init__(
        self,
        model: ir.Model,
        groups: Sequence[Sequence[str]],
        finish: Finish | None = None,
        *,
        threads: int = 0,
    ) -> None:
        self._sessions: list[Session] = []
        self._names: list[tuple[tuple[str, ...], dict[str, int]]] = []
        for at, segment in enumerate(segments(model, groups)):
            part, across = _part(model, segment, at, finish)
            self._sessions.append(Session(part, in_turns=True, threads=threads))
            self._names.append((segment.group, across))
        self._last = {
            name: at for at, session in enumerate(self._sessions) for name in session.input_names
        }

    def run(self, feed: Mapping[str, Any]) -> Iterator[list[Any]]:
        """The tensors of each group, in order, for one sample."""
        held = dict(feed)
        for at, session in enumerate(self._sessions):
            results = session.run({name: held[name] for name in session.input_names})
            group, across = self._names[at]
            held |= {name: results[index] for name, index in across.items()}
            held = {name: array for name, array in held.items() if self._last.get(name, -1) > at}
            yield results[: len(group)]


def _part(
    model: ir.Model, segment: Segment, at: int, finish: Finish | None
) -> tuple[ir.Model, dict[str, int]]:
    """The model of a stretch, and which of its outputs go to later ones."""
    wanted = dict.fromkeys((*segment.group, *segment.across))
    part = extract(model, {name: name for name in segment.given}, list(wanted))
    values = dict(zip(wanted, part.graph.outputs, strict=True))
    if finish is not None:
        finish(part, at)
    across: dict[str, int] = {}
    for name in segment.across:
        same = [i for i, value in enumerate(part.graph.outputs) if value is values[name]]
        if not same:
            part.graph.outputs.append(values[name])
        across[name] = same[0] if same else len(part.graph.outputs) - 1
    return part, across
