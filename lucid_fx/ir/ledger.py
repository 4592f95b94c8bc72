"""The ledger: what happened to every source node, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import onnx_ir as ir

from lucid_fx.ir.provenance import origins
from lucid_fx.ir.tables import html_table
from lucid_fx.ir.walk import nodes

Status = Literal["quantized", "passed_through", "fused", "float", "refused"]

NOT_LOOKED_AT = "not looked at yet"
METADATA_KEY = "lucid_fx.ledger"


@dataclass(frozen=True)
class LedgerEntry:
    """One source node: its fate and the reason.

    ``status``: *quantized* (computes on codes), *passed_through* (moves codes, or computes no
    reals), *fused* (folded into others), *float* (left as it was), *refused* (asked for, but not
    possible).
    """

    node: str
    op_type: str
    status: Status
    reason: str
    pass_name: str = ""


class Ledger:
    """Entries by source node, in the order of the source graph; the last word on a node counts."""

    def __init__(self) -> None:
        self._entries: dict[str, LedgerEntry] = {}
        self.notes: list[str] = []

    def open(self, model: ir.Model) -> None:
        """One entry for each node of the traced model, before any pass has run."""
        for node in nodes(model):
            name = node.name or ""
            self._entries[name] = LedgerEntry(name, node.op_type, "float", NOT_LOOKED_AT)

    def record(self, node: ir.Node, status: Status, reason: str, pass_name: str) -> None:
        """Say what became of all source nodes that ``node`` stands for."""
        for name in origins(node):
            if name in self._entries:
                old = self._entries[name]
                self._entries[name] = LedgerEntry(name, old.op_type, status, reason, pass_name)

    def close(self, model: ir.Model) -> None:
        """Say of nodes that no pass spoke of, and that are gone, that others took them in."""
        alive = {name for node in nodes(model) for name in origins(node)}
        for name, entry in self._entries.items():
            if entry.reason == NOT_LOOKED_AT and name not in alive:
                self._entries[name] = LedgerEntry(
                    name, entry.op_type, "fused", "folded into its neighbours"
                )

    def note(self, text: str) -> None:
        """Something that concerns the whole model (a repair, an assumption); kept once."""
        if text not in self.notes:
            self.notes.append(text)

    def __iter__(self) -> Iterator[LedgerEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, node: str) -> LedgerEntry:
        return self._entries[node]

    def __contains__(self, node: str) -> bool:
        return node in self._entries

    def counts(self) -> dict[str, int]:
        """Number of source nodes by status."""
        return dict(Counter(entry.status for entry in self))

    def summary(self) -> str:
        """One line by status, then the commonest reasons for nodes left in float."""
        lines = [f"{count:5d} {status}" for status, count in sorted(self.counts().items())]
        left = Counter(
            f"{entry.op_type}: {entry.reason}"
            for entry in self
            if entry.status in ("float", "refused")
        )
        lines += [f"      {count:4d} × {reason}" for reason, count in left.most_common(8)]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

    def _repr_html_(self) -> str:
        rows = [["node", "op", "status", "reason", "pass"]]
        rows += [[e.node, e.op_type, e.status, e.reason, e.pass_name] for e in self]
        notes = [["notes"], *([note] for note in self.notes)]
        return html_table(rows, "ledger") + html_table(notes)

    def to_json(self) -> str:
        """All entries and notes as JSON text; `from_json` reads it back."""
        return json.dumps({"entries": [asdict(e) for e in self], "notes": self.notes}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Read what `to_json` wrote."""
        data = json.loads(text)
        ledger = cls()
        ledger._entries = {e["node"]: LedgerEntry(**e) for e in data["entries"]}
        ledger.notes = list(data["notes"])
        return ledger

    def copy(self) -> Ledger:
        """An independent copy."""
        twin = Ledger()
        twin._entries, twin.notes = dict(self._entries), list(self.notes)
        return twin


def ledger_of(model: ir.Model) -> Ledger:
    """The ledger that travels with a model in memory; a new one where there is none."""
    ledger = model.meta.get(METADATA_KEY)
    if ledger is None:
        ledger = model.meta[METADATA_KEY] = Ledger()
    assert isinstance(ledger, Ledger)
    return ledger
