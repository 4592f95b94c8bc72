"""PreparedModule: a float model with observers in it."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Iterator
from threading import Lock
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.errors import CalibrationError, LucidFxWarning
from lucid_fx.feeds import Feed
from lucid_fx.graph_module import GraphModule, clone_model
from lucid_fx.ir.walk import nodes
from lucid_fx.native.lanes import Lanes
from lucid_fx.native.library import load, say_missing
from lucid_fx.native.observers import NativeObservers, ObserverState
from lucid_fx.passes.choose_integer_regions import Plan, real_values
from lucid_fx.passes.equalization_sites import Site, find_sites
from lucid_fx.passes.insert_observers import InsertObservers
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.passes.unseen_values import leave_unseen
from lucid_fx.quantization import (
    ObserverBase,
    PerChannelMinMaxObserver,
    QConfig,
    QParams,
    per_channel_affine,
    quint8,
)
from lucid_fx.runtime.python_observing import PythonObserving
from lucid_fx.statistics import (
    Statistics,
    channel_means,
    grid_spans,
    has_seen,
    site_factors,
    value_grids,
)
from lucid_fx.tapped_session import open_tapped
from lucid_fx.target import Target

_IDS = itertools.count()

KEPT_SAMPLES, KEPT_BYTES = 16, 32 * 2**20
"""How many samples, and how many bytes of them, are kept for bias correction."""

MASKED_SHARE = 0.02
"""Where more of a value than this is infinite, it is a mask, which no grid can hold."""


class PreparedModule(GraphModule):
    """A float model that gathers statistics whenever it runs.

    Args:
        model: the fused float model; kept as ``float_model``.
        plan: what will compute on codes.
        recipes: node name → recipe, None for float.
        target: where the result will run.
        shapes: shapes of one sample, by value.
        equalize: even out channel ranges where the weights can undo it.
    """

    def __init__(
        self,
        model: ir.Model,
        plan: Plan,
        recipes: dict[str, QConfig | None],
        target: Target,
        shapes: dict[str, tuple[int, ...]] | None = None,
        *,
        equalize: bool = True,
    ) -> None:
        self.float_model, self.plan, self.recipes, self.target = model, plan, recipes, target
        self.shapes = shapes or {}
        self.prefix = f"prepared{next(_IDS)}/"
        self.observers: dict[str, ObserverBase] = {}
        for value, governs in plan.observed.items():
            recipe = recipes.get(governs)
            assert recipe is not None
            self.observers[value] = recipe.activation_observer()
        self.sites = self._sites() if equalize else []
        for site in self.sites:
            for changed in (site.value, *site.between):
                self.observers[changed.name or ""] = PerChannelMinMaxObserver(
                    site.axis, per_channel_affine, quint8
                )
        library = load()
        self.native = None if library is None else NativeObservers(library)
        if self.native is None:
            say_missing()
        self._python = PythonObserving(self.observers)
        known = all(value in self.shapes for value in self.observers)
        self._elements = (
            sum(math.prod(self.shapes[value]) for value in self.observers) if known else None
        )
        self.samples, self.kept, self._kept_bytes = 0, list[Feed](), 0
        self._lanes: Lanes | None = None
        self._lane = Lock()
        super().__init__(self._observed_model())

    def _sites(self) -> list[Site]:
        """Where channels can be evened out: all readers have integer weights.

        Where the user's own observer has the word on a range, nobody else takes it.
        """
        own = {value for value, observer in self.observers.items() if observer.native_kind is None}
        return [
            site
            for site in find_sites(self.float_model)
            if self._can_even(site)
            and own.isdisjoint(value.name for value in (site.value, *site.between))
        ]

    def _can_even(self, site: Site) -> bool:
        """Whether the readers have integer weights, and a Mul of its own would be in float."""
        integer, dynamic = self.plan.integer, self.plan.dynamic
        if not all(reader.name in integer | dynamic for reader in site.readers):
            return False
        if site.makers:
            return True
        if site.axis == -1:
            in_float = site.value.name not in self.plan.observed
            return in_float and all(reader.name in dynamic for reader in site.readers)
        producer = site.value.producer()
        graphs = {id(node.graph) for node in (producer, *site.readers) if node is not None}
        return producer is not None and producer.name not in integer and len(graphs) == 1

    def factors(self) -> dict[str, NDArray[Any]]:
        """Channel factors of each site, from the statistics."""
        return site_factors(self.sites, self.observers)

    def _native_values(self) -> dict[str, ObserverBase]:
        if self.native is None:
            return {}
        return {v: o for v, o in self.observers.items() if o.native_kind is not None}

    def _observed_model(self) -> ir.Model:
        """A clone with an Observe op beside every value that native code can watch."""
        model = clone_model(self.float_model)
        taps = {v: self._attributes(v, o) for v, o in self._native_values().items()}
        run_pipeline(model, (InsertObservers(taps),))
        places = [node.graph is model.graph for node in nodes(model) if node.op_type == "Observe"]
        self._taps_once = bool(places) and all(places)
        self._python_values = [v for v in self.observers if v not in taps]
        if self._python_values:
            self._expose(model)
        return model

    def _expose(self, model: ir.Model) -> None:
        """Make values that Python observers watch further graph outputs."""
        by_name = {value.name: value for value in real_values(model)}
        reachable = []
        for name in self._python_values:
            value = by_name[name]
            if value.graph is model.graph or value in model.graph.inputs:
                reachable.append(name)
                if not value.is_graph_output() and not value.is_graph_input():
                    model.graph.outputs.append(value)
        self._python_values = reachable

    def _attributes(self, value: str, observer: ObserverBase) -> dict[str, Any]:
        found: dict[str, Any] = {"key": self.prefix + value, "kind": observer.native_kind}
        if (bins := getattr(observer, "bins", None)) is not None:
            found["bins"] = bins
        if (constant := getattr(observer, "averaging_constant", None)) is not None:
            found["averaging_constant"] = float(constant)
        if observer.ch_axis is not None:
            found["ch_axis"] = observer.ch_axis
        return found

    @property
    def output_names(self) -> list[str]:
        """Names of the float model's outputs."""
        return [value.name or "" for value in self.float_model.graph.outputs]

    @property
    def taps_once(self) -> bool:
        """Whether native observers see every value exactly once a sample: none is in a body."""
        return self._taps_once and not self._python_values

    @property
    def observed_elements(self) -> int:
        """How many elements of one sample the observers see; 0 before anything tells."""
        if self._elements is not None:
            return self._elements
        return sum(state.max_elements for state in self.states(arrays=False).values())

    @contextlib.contextmanager
    def lanes(self, threads: int) -> Iterator[Lanes | None]:
        """Lanes for samples to run side by side; None while another thread has some.

        Their session is opened at first use.
        """
        library = load()
        if library is None or not self._lane.acquire(blocking=False):
            yield None
            return
        try:
            if self._lanes is None or self._lanes.threads != threads:
                self._lanes = Lanes(open_tapped(library, self.model), threads)
            yield self._lanes
        finally:
            self._lane.release()

    def _run(self, feed: Feed) -> list[Any]:
        results = self.session().run(feed)
        self.samples += 1
        self.keep(feed)
        if self._python_values:
            given = dict(zip(self.session().output_names, results, strict=True)) | feed
            for name in self._python_values:
                self._python.update(name, given[name])
        return results[: len(self.output_names)]

    def keep(self, feed: Feed) -> None:
        """Keep the first samples, within a bound, for what needs a second look at data."""
        if len(self.kept) == KEPT_SAMPLES:
            return
        if not all(isinstance(array, np.ndarray) for array in feed.values()):
            return  # sequences and optional values
        size = sum(array.nbytes for array in feed.values())
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept_bytes += size
            self.kept.append({name: array.copy() for name, array in feed.items()})

    def states(self, *, arrays: bool = True) -> dict[str, ObserverState]:
        """What the native observers saw, by value; see `NativeObservers.state`."""
        if self.native is None:
            return {}
        native, values = self.native, self._native_values()
        found = {v: native.state(self.prefix + v, arrays=arrays) for v in values}
        return {value: state for value, state in found.items() if state is not None}

    def _counts(self) -> dict[str, ObserverState]:
        """What passed by every observer, native and in Python: elements, NaN, infinities."""
        return self.states(arrays=False) | self._python.counts()

    def reset(self) -> None:
        """Forget all statistics."""
        if self.native is not None:
            self.native.reset(self.prefix)
        for observer in self.observers.values():
            observer.reset()
        self._python.reset()
        self.samples, self.kept, self._kept_bytes = 0, [], 0

    def report_nonfinite(self, *, error: bool) -> None:
        """Warn about, or refuse, tensors in which NaN or infinities were seen."""
        if not self._python_values and self.native and not self.native.nonfinite(self.prefix):
            return  # at once, where all is well
        for value, state in self._counts().items():
            bad = state.nan_count + state.inf_count
            if not bad:
                continue
            text = (
                f"{state.nan_count} NaN and {state.inf_count} infinite values"
                f" in {state.elements} were ignored"
            )
            if error:
                raise CalibrationError(text, tensor=value, hint="check the samples")
            warnings.warn(f"tensor {value!r}: {text}", LucidFxWarning, stacklevel=3)

    def statistics(self) -> Statistics:
        """Everything that the passes need of what was seen; see `grids` for errors."""
        self._require_samples()
        self._leave_unseen()
        factors = self.factors()
        grids = value_grids(self.float_model, self.plan, self.observers, self.sites, factors)
        products = {
            str(node.name)
            for node in nodes(self.float_model)
            if node.name in self.plan.integer and node.op_type in ("MatMul", "Gemm")
        }
        means = channel_means(self.float_model, self.plan, self.kept, factors)
        spans = grid_spans(self.observers, grids)
        return Statistics(grids, factors, means, spans, frozenset(products))

    def _leave_unseen(self) -> None:
        """Take out of the plan what needs the range of a value that no sample gave."""
        if not self.samples:
            return
        self._take_states()
        masks = {
            value
            for value, state in self._counts().items()
            if state.inf_count > MASKED_SHARE * max(state.elements, 1)
        }
        seen = {v for v, observer in self.observers.items() if has_seen(observer)} - masks
        self.plan = leave_unseen(self.float_model, self.plan, seen)
        self.sites = [
            site
            for site in self.sites
            if all(value.name in seen for value in (site.value, *site.between))
        ]

    def grids(self) -> dict[str, QParams]:
        """The grid of every value on codes, from the statistics.

        Raises:
            CalibrationError: no data was seen at all.
        """
        self._require_samples()
        self._take_states()
        return value_grids(self.float_model, self.plan, self.observers, self.sites, self.factors())

    def _require_samples(self) -> None:
        if not self.samples and self.observers:
            raise CalibrationError(
                "the prepared model has seen no data", hint="run calibrate, or call it on samples"
            )

    def _take_states(self) -> None:
        for value, state in self.states().items():
            observer = self.observers[value]
            loaded: dict[str, Any] = {"min_val": state.min_val, "max_val": state.max_val}
            if state.channel_min is not None:
                loaded = {"min_val": state.channel_min, "max_val": state.channel_max}
            if state.histogram is not None:
                loaded |= {
                    "min_val": state.histogram_min,
                    "max_val": state.histogram_max,
                    "histogram": state.histogram,
                }
            observer.load_state_dict(loaded)

    def left_in_float(self) -> frozenset[str]:
        """Nodes for which the configuration has no recipe."""
        return frozenset(name for name, recipe in self.recipes.items() if recipe is None)

    def weight_factories(self) -> dict[str, Any]:
        """Node name → factory of its weight observer."""
        recipes = self.recipes.items()
        return {name: recipe.weight_observer for name, recipe in recipes if recipe is not None}
