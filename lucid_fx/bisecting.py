"""bisect(): the first pass after which a model's numbers are no longer what they were."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from lucid_fx.accuracy_guard import LEAST_SQNR_DB
from lucid_fx.conversion import Format, convert
from lucid_fx.errors import DataError, ModelError
from lucid_fx.feeds import Feed
from lucid_fx.graph_module import clone_model
from lucid_fx.ir.tables import html_table, text_table
from lucid_fx.ir.walk import graphs
from lucid_fx.passes.pipeline import GraphPass, watching
from lucid_fx.quantization import QConfig, QConfigMapping
from lucid_fx.runtime.session import Session
from lucid_fx.target import Target
from lucid_fx.tensor_error import decibels
from lucid_fx.tracing import trace
from lucid_fx.workflow import calibrate, fuse, prepare_fx

MEASURED_SAMPLES = 4
"""Samples that the outputs are measured on after each pass."""


@dataclass(frozen=True)
class PassEffect:
    """The outputs after a pass that changed the model.

    Attributes:
        stage: "fuse" or "convert".
        pass_name: which pass.
        sqnr_db: the least signal-to-noise ratio of any output, against the model as it came in;
            None where that cannot be measured at this point.
        error: why it cannot.
    """

    stage: str
    pass_name: str
    sqnr_db: float | None
    error: str = ""


@dataclass(frozen=True)
class Bisection:
    """What every pass did to the numbers.

    Attributes:
        effects: passes that changed the model, in order.
        bound: least signal-to-noise ratio in dB that the outputs must keep.
    """

    effects: tuple[PassEffect, ...]
    bound: float

    @property
    def first(self) -> PassEffect | None:
        """The first pass after which an output keeps less than the bound; None where all keep."""
        below = (e for e in self.effects if e.sqnr_db is not None and e.sqnr_db < self.bound)
        return next(below, None)

    def to_json(self) -> str:
        """Everything as JSON text."""
        first = None if self.first is None else self.first.pass_name
        effects = [asdict(effect) for effect in self.effects]
        return json.dumps({"bound": self.bound, "first": first, "effects": effects}, indent=1)

    def text(self) -> str:
        """A line for each pass, and the first that moved the numbers."""
        lines = text_table([_HEAD, *map(_cells, self.effects)])
        if self.first is None:
            return "\n".join([*lines, f"every pass keeps {self.bound:g} dB"])
        return "\n".join([*lines, f"below {self.bound:g} dB first after {self.first.pass_name}"])

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return html_table([_HEAD, *map(_cells, self.effects)], "outputs after each pass")


_HEAD = ["stage", "pass", "least SQNR of the outputs"]


def _cells(effect: PassEffect) -> list[str]:
    ratio = effect.error if effect.sqnr_db is None else f"{effect.sqnr_db:.1f} dB"
    return [effect.stage, effect.pass_name, ratio]


def bisect(
    model: Any,
    data: Iterable[Any],
    qconfig_mapping: QConfigMapping[QConfig] | QConfig | None = None,
    *,
    bound: float = LEAST_SQNR_DB,
    target: str | Target = "auto",
    format: Format = "qoperator",
) -> Bisection:
    """Quantize a model, and run it after every pass that changed it.

    The accuracy guard does not step in, so that what it would repair is seen.

    Args:
        model: anything that `trace` takes.
        data: calibration samples; the first few are those that the outputs are measured on.
        qconfig_mapping, target: see `prepare_fx`.
        bound: least signal-to-noise ratio in dB; float passes keep more than 100 dB.
        format: see `convert_fx`.

    Raises:
        DataError: no samples, or one that does not fit the model.
    """
    samples = iter(data)
    first = list(itertools.islice(samples, MEASURED_SAMPLES))
    if not first:
        raise DataError("there are no calibration samples", hint="give at least one")
    module = trace(model)
    feeds = [module.feed(sample) for sample in first]
    watch = _Watch(module.model, feeds)
    with watching(watch.after):
        module = fuse(module, inplace=True)
    prepared = prepare_fx(module, qconfig_mapping, feeds[0], target=target, inplace=True)
    calibrate(prepared, itertools.chain(feeds, samples))
    statistics = prepared.statistics()
    watch.stage = "convert"
    with watching(watch.after):
        convert(prepared, prepared.plan, statistics, format)
    return Bisection(tuple(watch.effects), bound)


class _Watch:
    """Runs the model after each pass, and compares with what it gave at first."""

    def __init__(self, model: ir.Model, feeds: list[Feed]) -> None:
        self.feeds, self.stage = feeds, "fuse"
        self.names = [value.name or "" for value in model.graph.outputs]
        session = Session(model)
        self.truth = [session.run(feed) for feed in feeds]
        self.effects: list[PassEffect] = []

    def after(self, graph_pass: GraphPass, model: ir.Model, changed: bool) -> None:
        if not changed:
            return
        if graph_pass.completed_by:
            text = f"not yet: it holds once {graph_pass.completed_by} has run"
            self.effects.append(PassEffect(self.stage, graph_pass.name, None, text))
            return
        try:
            ratio, error = self._least(model), ""
        except ModelError as failure:
            ratio, error = None, failure.message
        self.effects.append(PassEffect(self.stage, graph_pass.name, ratio, error))

    def _least(self, model: ir.Model) -> float | None:
        """The least ratio of any float output; an output of integers counts its wrong values."""
        session = Session(_any_shape(model))
        signal, noise = dict.fromkeys(self.names, 0.0), dict.fromkeys(self.names, 0.0)
        for feed, truth in zip(self.feeds, self.truth, strict=True):
            found = session.run({name: feed[name] for name in session.input_names}, self.names)
            for name, exact, given in zip(self.names, truth, found, strict=True):
                power, lost = _noise(exact, given)
                signal[name] += power
                noise[name] += lost
        ratios = [decibels(signal[name], noise[name]) for name in self.names]
        return min((ratio for ratio in ratios if ratio is not None), default=None)


def _noise(exact: Any, given: Any) -> tuple[float, float]:
    if not isinstance(exact, np.ndarray) or exact.dtype.kind not in "fiub":
        return 0.0, 0.0
    known = np.isfinite(exact)
    a, b = exact[known].astype(np.float64), given[known].astype(np.float64)
    lost = float(np.sum((a - b) ** 2)) if np.isfinite(b).all() else np.inf
    return float(np.sum(a**2)), lost


def _any_shape(model: ir.Model) -> ir.Model:
    """A clone that knows no shapes inside, as passes assume those of one sample."""
    twin = clone_model(model)
    for value in _inner_values(twin):
        value.shape = None
    return twin


def _inner_values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in graphs(model):
        for node in graph:
            yield from (v for v in node.outputs if not v.is_graph_output())
