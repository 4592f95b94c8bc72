"""report(): everything that is known about a quantized model in one HTML file."""

from __future__ import annotations

import dataclasses
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.comparing import compare
from lucid_fx.comparison import Comparison
from lucid_fx.diffing import GraphDiff, diff
from lucid_fx.errors import LucidFxError, ModelError
from lucid_fx.explaining import Deployed, Explanation, Times, explain
from lucid_fx.feeds import Feed
from lucid_fx.graph_module import GraphModule
from lucid_fx.ir.ledger import NOT_LOOKED_AT, ledger_of
from lucid_fx.ir.pairing import Pair, pair_tensors
from lucid_fx.ir.provenance import origins
from lucid_fx.ir.walk import nodes
from lucid_fx.prepared import PreparedModule
from lucid_fx.quantization import HistogramObserver
from lucid_fx.reporting.page import page
from lucid_fx.reporting.views import Facts, view
from lucid_fx.tracing import trace
from lucid_fx.workflow import calibrate, prepare_fx

TIMED, HISTOGRAMS, BARS, OP_TYPES = 8, 24, 64, 24
"""Samples that are timed, tensors whose histogram is shown, bars of each, op types by time."""
TOP_DB = 120.0
"""What a layer without any error is coloured as."""
FOREIGN = "lucid_fx has not made the quantized model: the ledger only lists its nodes"


def report(
    model: Any,
    quantized: Any,
    out: str | Path,
    *,
    data: Iterable[Any] = (),
    samples: int = 64,
    threads: int = 1,
) -> Path:
    """Write one HTML file that needs no network: graphs side by side, ledger, errors, times.

    Args:
        model: the float model, anything that `trace` takes.
        quantized: what was made from it.
        out: the file; either the old one or the whole new one is there.
        data: samples for the float model; without any there are no errors and no times.
        samples: at most so many of them.
        threads: of the timed sessions.

    Raises:
        ConfigError: a library that only reports need is not installed.
        DataError: a sample that does not fit the model.
        ModelError: there is no folder to write to.
    """
    path = Path(out)
    if not path.parent.is_dir():
        raise ModelError(f"there is no folder {str(path.parent)!r} to write {path.name!r} to")
    exact, coded = trace(model, allow_quantized=True), trace(quantized, allow_quantized=True)
    feeds = [exact.feed(sample) for sample in itertools.islice(data, samples)]
    text = page(_content(exact, coded, feeds, threads))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        draft = Path(folder) / path.name
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    return path


def _content(
    exact: GraphModule, coded: GraphModule, feeds: Sequence[Feed], threads: int
) -> dict[str, Any]:
    """All of the report as JSON-safe data."""
    compared = compare(exact, coded, feeds) if feeds else None
    explained = explain(coded, float_model=exact, data=feeds[:TIMED], threads=threads)
    found = _Found(exact, coded, feeds, compared, explained, diff(exact, coded))
    ledger, foreign = ledger_of(coded.model), [] if found.status else [FOREIGN]
    return {
        "title": coded.model.graph.name or "model",
        "tiles": _tiles(found),
        "rewrites": _rewrites(found.changes),
        "ledger": [dataclasses.asdict(entry) for entry in ledger],
        "notes": [*foreign, *ledger.notes],
        "findings": [dataclasses.asdict(finding) for finding in explained.findings],
        "culprits": [dataclasses.asdict(one) for one in compared.culprits] if compared else [],
        "views": _views(found),
        "errors": _errors(compared),
        "times": _times(explained),
        "histograms": _histograms(found),
        "samples": len(feeds),
    }


@dataclasses.dataclass(frozen=True)
class _Found:
    """Both models and what was measured on them."""

    exact: GraphModule
    coded: GraphModule
    feeds: Sequence[Feed]
    compared: Comparison | None
    explained: Explanation
    changes: GraphDiff

    @cached_property
    def status(self) -> dict[str, str]:
        """Status by source node; empty where no pass of ours has made the quantized model."""
        entries = list(ledger_of(self.coded.model))
        if all(entry.reason == NOT_LOOKED_AT for entry in entries):
            return {}
        return {entry.node: entry.status for entry in entries}

    @cached_property
    def pairs(self) -> list[Pair]:
        """Tensors of the float model with those that stand for them."""
        return pair_tensors(self.exact.model, self.coded.model)

    @cached_property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """Float nodes by quantized node: by provenance, or else by tensors or structure."""
        known = {node.name for node in nodes(self.exact.model)}
        aligned = {name: change.a for change in self.changes.changes for name in change.b}
        aligned |= {pair.quant_node: (pair.node,) for pair in self.pairs if pair.node}
        recorded = {node.name or "": origins(node) for node in nodes(self.coded.model)}
        return {
            name: of if known.intersection(of) else aligned.get(name) or of
            for name, of in recorded.items()
        }

    @cached_property
    def prepared(self) -> PreparedModule | None:
        """The float model with observers; None where it is quantized itself."""
        try:
            prepared = prepare_fx(self.exact, None, self.feeds[0] if self.feeds else None)
        except LucidFxError:
            return None
        if self.feeds:
            calibrate(prepared, self.feeds, nonfinite="ignore")
        return prepared


def _tiles(found: _Found) -> list[list[str]]:
    """A number and what it counts, for each tile."""
    explained, floats = found.explained, found.exact.nbytes / 2**20
    tiles = [[f"{found.coded.nbytes / 2**20:.2f} MB", f"of weights; {floats:.2f} MB in float"]]
    for status, count in Counter(found.status.values()).items():
        tiles.append([str(count), f"nodes {status.replace('_', ' ')}"])
    if found.compared is not None:
        ratios = [ratio for ratio in found.compared.outputs.values() if ratio is not None]
        least = f"{min(ratios):.1f} dB" if ratios else "-"
        tiles.append([least, "least signal to noise of an output"])
    if explained.times is not None and explained.float_times is not None:
        ratio = explained.times.total / max(explained.float_times.total, 1e-9)
        micros = f"{explained.float_times.total:,.0f} µs"
        tiles.append([f"{ratio:.2f} ×", f"the float model's time of {micros}"])
    for kind in ("integer", "float"):
        tiles.append([str(explained.counts.get(kind, 0)), f"{kind} nodes run by onnxruntime"])
    return [*tiles, [str(len(explained.findings)), "findings"]]


def _rewrites(found: GraphDiff) -> list[dict[str, Any]]:
    """Changes of the same kind together, the commonest first."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for change in found.changes:
        if change.kind != "same":
            before, after = _counted(change.a_ops), _counted(change.b_ops)
            key = change.kind, before, after, ", ".join(change.passes)
            alike.setdefault(key, []).append((*change.a, *change.b)[0])
    groups = sorted(alike.items(), key=lambda group: -len(group[1]))
    names = ("kind", "before", "after", "passes")
    return [
        dict(zip(names, key, strict=True)) | {"count": len(group), "node": group[0]}
        for key, group in groups
    ]


def _counted(ops: Sequence[str]) -> str:
    """Op types with how often each is there."""
    return " + ".join(op if n == 1 else f"{n} {op}" for op, n in Counter(ops).items())


def _views(found: _Found) -> list[dict[str, Any]]:
    """Float, fused, prepared, quantized, and what onnxruntime runs."""
    status, error = found.status, _layer_errors(found)
    micros = found.explained.times.nodes if found.explained.times is not None else {}
    float_times = found.explained.float_times
    floats = float_times.nodes if float_times is not None else {}
    deployed = Deployed(found.coded.model)
    kept = {fate.node: micros[fate.into] for fate in deployed.fates
            if fate.fate == "kept" and fate.into in micros}  # fmt: skip
    views = [view("float", found.exact.model, Facts(status, error, floats))]
    if found.prepared is not None:
        views.append(view("fused", found.prepared.float_model, Facts(status, error)))
        views.append(view("prepared", found.prepared.model, Facts(status, error)))
    views.append(view("quantized", found.coded.model, Facts(status, error, kept, found.sources)))
    behind = _sources_of_deployed(deployed, found.sources)
    views.append(view("onnxruntime", deployed.optimised, Facts(status, error, micros, behind)))
    return views


def _layer_errors(found: _Found) -> dict[str, float]:
    """The error of each source node, or else of the layer that it went into."""
    rows = found.compared.rows if found.compared is not None else ()
    error = {r.node: min(r.own_sqnr_db, TOP_DB) for r in rows if r.own_sqnr_db is not None}
    layers = dict(error)
    for sources in found.sources.values():
        known = [error[source] for source in sources if source in error]
        if known:
            for source in sources:
                layers.setdefault(source, min(known))
    return layers


def _sources_of_deployed(
    deployed: Deployed, sources: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Source nodes behind each node of onnxruntime's graph."""
    behind: dict[str, dict[str, None]] = {}
    for fate in deployed.fates:
        behind.setdefault(fate.into, {}).update(dict.fromkeys(sources[fate.node]))
    return {name: tuple(found) for name, found in behind.items()}


def _errors(compared: Comparison | None) -> list[dict[str, Any]]:
    rows = [] if compared is None else compared.rows
    return [
        {"node": row.node, "own": _lossy(row.own_sqnr_db), "all": _lossy(row.sqnr_db)}
        for row in rows
        if row.own_sqnr_db is not None or row.sqnr_db is not None
    ]


def _lossy(ratio: float | None) -> float | None:
    """None for layers that lose nothing, which would hide the others in a chart."""
    return None if ratio is None or ratio >= TOP_DB else ratio


def _times(explained: Explanation) -> dict[str, Any]:
    def by_op(times: Times | None) -> dict[str, float]:
        return {} if times is None else times.ops

    ours, theirs = by_op(explained.times), by_op(explained.float_times)
    ops = sorted({*ours, *theirs}, key=lambda op: -(ours.get(op, 0) + theirs.get(op, 0)))
    ops = ops[:OP_TYPES]
    return {
        "ops": ops,
        "quantized": [ours.get(op, 0.0) for op in ops],
        "float": [theirs.get(op, 0.0) for op in ops],
    }


def _histograms(found: _Found) -> list[dict[str, Any]]:
    """Histograms of tensors with the range that their grid covers, the worst layers first."""
    if not found.feeds or found.prepared is None:
        return []
    ranges = {pair.tensor: pair.grid.range for pair in found.pairs if pair.grid is not None}
    rows = found.compared.rows if found.compared is not None else ()
    error = {row.tensor: row.own_sqnr_db for row in rows if row.own_sqnr_db is not None}
    shown: list[dict[str, Any]] = []
    for tensor, counts, low, high in _counted_values(found.prepared):
        bars = [int(part.sum()) for part in np.array_split(counts, BARS)]
        middles = (np.arange(len(bars)) + 0.5) * (high - low) / len(bars) + low
        shown.append(
            {"tensor": tensor, "x": middles.tolist(), "counts": bars, "range": ranges.get(tensor)}
        )
    shown.sort(key=lambda one: (one["range"] is None, error.get(one["tensor"], TOP_DB)))
    return shown[:HISTOGRAMS]


def _counted_values(
    prepared: PreparedModule,
) -> Iterator[tuple[str, NDArray[np.int64], float, float]]:
    """Tensor, histogram and its ends, from native observers and those in Python."""
    states = prepared.states()
    for tensor, observer in prepared.observers.items():
        state = states.get(tensor)
        if state is not None and state.histogram is not None:
            counted = state.histogram, state.histogram_min, state.histogram_max
        elif isinstance(observer, HistogramObserver):
            counted = observer.histogram, float(observer.min_val), float(observer.max_val)
        else:
            continue
        if counted[0].any():
            yield tensor, *counted
