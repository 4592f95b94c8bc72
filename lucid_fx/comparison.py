"""What `compare` found, as data, as text and as HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lucid_fx.culprits import HEALTHY_DB, Culprit, own_sqnr_db
from lucid_fx.ir.pairing import Pair
from lucid_fx.ir.tables import html_table, text_table
from lucid_fx.tensor_error import TensorError


@dataclass(frozen=True)
class TensorRow:
    """The error of one tensor.

    Attributes:
        tensor, node, op_type: in the float model.
        codes: its name in the quantized model.
        sqnr_db: signal-to-quantization-noise ratio in dB, all that came before included; None where
            the tensor is zero.
        own_sqnr_db: the same of its layer alone, on the float model's tensors.
        max_error_steps: largest error in steps of its grid; None where it has none.
        clipped: share of the float values that lie outside the grid.
        range_used: share of the grid's range that the float values span.
        codes_used: number of different codes met.
    """

    tensor: str
    node: str
    op_type: str
    codes: str
    sqnr_db: float | None
    own_sqnr_db: float | None
    max_error_steps: float | None
    clipped: float | None
    range_used: float | None
    codes_used: int | None

    @classmethod
    def of(cls, pair: Pair, given: TensorError, own: TensorError) -> TensorRow:
        """The row of a pair, from its statistics."""
        grid = pair.grid
        names = (pair.tensor, pair.node, pair.op_type, pair.codes, given.sqnr_db)
        own_db = own_sqnr_db(own, given)
        if grid is None:
            return cls(*names, own_db, None, None, None, None)
        low, high = grid.range
        span = (min(given.high, high) - max(given.low, low)) / (high - low)
        clipped = given.clipped / max(given.elements, 1)
        steps = given.largest / grid.scale
        return cls(*names, own_db, steps, clipped, min(1.0, max(0.0, span)), given.codes_used)


@dataclass(frozen=True)
class Comparison:
    """Where a quantized model loses accuracy.

    Attributes:
        rows: one for each tensor that is in both models, in the order of the quantized graph.
        culprits: what causes the worst layers, worst first.
        samples: how many were run.
        outputs: graph output → SQNR in dB.
        unmatched: tensors that could not be compared, with the reason.
    """

    rows: Sequence[TensorRow]
    culprits: Sequence[Culprit]
    samples: int
    outputs: Mapping[str, float | None]
    unmatched: Mapping[str, str]

    def __getitem__(self, tensor: str) -> TensorRow:
        """The row of a tensor of the float model."""
        for row in self.rows:
            if row.tensor == tensor:
                return row
        raise KeyError(tensor)

    def worst(self, count: int = 20) -> list[TensorRow]:
        """Rows by the error of the layer itself, worst first."""
        known = [row for row in self.rows if row.own_sqnr_db is not None]
        return sorted(known, key=lambda row: row.own_sqnr_db or 0.0)[:count]

    def to_json(self) -> str:
        """Everything as JSON text; numbers that are not finite become text."""
        report = {
            "samples": self.samples,
            "outputs": dict(self.outputs),
            "culprits": [asdict(culprit) for culprit in self.culprits],
            "tensors": [asdict(row) for row in self.rows],
            "unmatched": dict(self.unmatched),
        }
        return json.dumps(_safe(report), indent=1, allow_nan=False)

    def text(self, top: int = 20) -> str:
        """Outputs, culprits and the worst ``top`` tensors, as lines."""
        outputs = ", ".join(f"{name} {_db(ratio)}" for name, ratio in self.outputs.items())
        lines = [f"{len(self.rows)} tensors on {self.samples} samples; outputs: {outputs or '-'}"]
        lines += ["", "culprits, by the error of the layer itself"]
        if not self.culprits:
            lines.append(f"  none: every layer on codes keeps {HEALTHY_DB:g} dB by itself")
        for number, one in enumerate(self.culprits[:top], 1):
            lines.append(f"{number:3d}. {_db(one.sqnr_db):>8s}  {one.node} ({one.op_type})")
            lines.append(f"       {one.reason}: {one.text}")
            lines.append(f"       to change it: {one.setting}")
        lines += ["", "tensors", *text_table([_HEAD, *map(_cells, self.worst(top))])]
        left = len(self.rows) - min(top, len(self.rows))
        lines += [f"  and {left} more (--json shows all)"] if left else []
        if self.unmatched:
            name, why = next(iter(self.unmatched.items()))
            lines.append(f"not compared: {len(self.unmatched)} tensors, as {name} ({why})")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        head = ["node", "op", "own SQNR", "reason", "found", "to change it"]
        cells = [
            [c.node, c.op_type, _db(c.sqnr_db), c.reason, c.text, c.setting] for c in self.culprits
        ]
        tensors = html_table([_HEAD, *map(_cells, self.worst())])
        return html_table([head, *cells], "culprits") + tensors


_HEAD = ["tensor", "op", "SQNR", "own SQNR", "max error", "clipped", "range used", "codes"]


def _cells(row: TensorRow) -> list[str]:
    return [
        row.tensor,
        row.op_type,
        _db(row.sqnr_db),
        _db(row.own_sqnr_db),
        "-" if row.max_error_steps is None else f"{row.max_error_steps:.1f} steps",
        "-" if row.clipped is None else f"{row.clipped:.2%}",
        "-" if row.range_used is None else f"{row.range_used:.0%}",
        "-" if row.codes_used is None else str(row.codes_used),
    ]


def _db(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1f} dB"


def _safe(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _safe(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_safe(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data
