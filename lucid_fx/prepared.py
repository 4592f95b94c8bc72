"""PreparedModule: a float model with observers in it."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.errors import CalibrationError, LucidFxWarning
from lucid_fx.graph_module import Feed, GraphModule, clone_model
from lucid_fx.ir.walk import nodes
from lucid_fx.ops.row import OutputGrid
from lucid_fx.ops.table import find_row, needed_range
from lucid_fx.passes.choose_integer_regions import Plan, grid_root, real_values
from lucid_fx.passes.equalization_sites import Site, find_sites
from lucid_fx.passes.equalize_channels import channel_factors
from lucid_fx.passes.insert_observers import InsertObservers
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.passes.tap_channel_means import TapChannelMeans, mean_name
from lucid_fx.passes.unseen_values import leave_unseen
from lucid_fx.quantization import (
    MinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    QConfig,
    QParams,
    calculate_qparams,
    per_channel_affine,
    per_tensor_affine,
    quint8,
)
from lucid_fx.runtime.native_library import NativeLibrary, ObserverState, load, say_missing
from lucid_fx.runtime.python_observing import PythonObserving
from lucid_fx.runtime.session import Session
from lucid_fx.target import Target

_IDS = itertools.count()

KEPT_SAMPLES, KEPT_BYTES = 8, 16 * 2**20
"""How many samples, and how many bytes of them, are kept for bias correction."""


@dataclass(frozen=True)
class Statistics:
    """What calibration tells the passes.

    Attributes:
        grids: value name → grid, for each value on codes.
        factors: value name → factor of each channel, where ranges are evened out.
        means: value name → mean of each channel, for what weighted nodes read.
        spans: value name → spread of the values in steps of their grid.
        matrix_products: nodes that can do with activations quantized at run time.
    """

    grids: dict[str, QParams]
    factors: dict[str, NDArray[Any]]
    means: dict[str, NDArray[Any]]
    spans: dict[str, float]
    matrix_products: frozenset[str]


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
            self.observers[value] = recipe.activation()
        self.sites = self._sites() if equalize else []
        for site in self.sites:
            for changed in (site.value, *site.between):
                self.observers[changed.name or ""] = PerChannelMinMaxObserver(
                    site.axis, per_channel_affine, quint8
                )
        self.native: NativeLibrary | None = load()
        if self.native is None:
            say_missing()
        self._python = PythonObserving(self.observers)
        self.samples, self.kept, self._kept_bytes = 0, list[Feed](), 0
        super().__init__(self._observed_model())

    def _sites(self) -> list[Site]:
        """Where channels can be evened out: all readers have integer weights.

        Where the user's own observer has the word on a range, nobody else takes it.
        """
        integer, dynamic = self.plan.integer, self.plan.dynamic
        own = {value for value, observer in self.observers.items() if observer.native_kind is None}
        return [
            site
            for site in find_sites(self.float_model)
            if all(
                reader.name in dynamic or (reader.name in integer and site.makers)
                for reader in site.readers
            )
            and (site.makers or site.value.name not in self.plan.observed)
            and own.isdisjoint(value.name for value in (site.value, *site.between))
        ]

    def factors(self) -> dict[str, NDArray[Any]]:
        """Channel factors of each site, from the statistics."""
        ranges = {v: o.range() for v, o in self.observers.items() if o.ch_axis is not None}
        found = {s.value.name or "": channel_factors(s, ranges) for s in self.sites}
        return {value: factor for value, factor in found.items() if factor is not None}

    def _native_values(self) -> dict[str, ObserverBase]:
        if self.native is None:
            return {}
        return {v: o for v, o in self.observers.items() if o.native_kind is not None}

    def _observed_model(self) -> ir.Model:
        """A clone with an Observe op beside every value that native code can watch."""
        model = clone_model(self.float_model)
        taps = {v: self._attributes(v, o) for v, o in self._native_values().items()}
        run_pipeline(model, (InsertObservers(taps),))
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

    def _run(self, feed: Feed) -> list[Any]:
        results = self.session().run(feed)
        self.samples += 1
        self._keep(feed)
        if self._python_values:
            given = dict(zip(self.session().output_names, results, strict=True)) | feed
            for name in self._python_values:
                self._python.update(name, given[name])
        return results[: len(self.output_names)]

    def _keep(self, feed: Feed) -> None:
        """Keep the first samples, within a bound, for what needs a second look at data."""
        if not all(isinstance(array, np.ndarray) for array in feed.values()):
            return  # sequences and optional values
        size = sum(array.nbytes for array in feed.values())
        if len(self.kept) < KEPT_SAMPLES and self._kept_bytes + size <= KEPT_BYTES:
            self._kept_bytes += size
            self.kept.append({name: array.copy() for name, array in feed.items()})

    def channel_means(self) -> dict[str, NDArray[Any]]:
        """Mean of each channel of what weighted nodes read, over the kept samples."""
        wanted: dict[str, int] = {}
        for node in self.float_model.graph:
            row = find_row(node)
            if node.name in self.plan.integer and row is not None and row.bias is not None:
                source = node.inputs[0]
                if source is not None and source.name:
                    wanted[source.name] = -1 if node.op_type == "Gemm" else 1
        if not wanted or not self.kept:
            return {}
        model = clone_model(self.float_model)
        run_pipeline(model, (TapChannelMeans(wanted),))
        session = Session(model)
        names = [mean_name(v) for v in wanted if mean_name(v) in session.output_names]
        sums = [session.run(feed, names) for feed in self.kept]
        means = {name: np.mean(rows, axis=0) for name, *rows in zip(names, *sums, strict=True)}
        found = {v: means[mean_name(v)] for v in wanted if mean_name(v) in means}
        for value, factor in self.factors().items():
            if value in found:
                found[value] = found[value] / factor
        return {v: mean for v, mean in found.items() if np.isfinite(mean).all()}

    def states(self) -> dict[str, ObserverState]:
        """What the native observers saw, by value."""
        if self.native is None:
            return {}
        found = {v: self.native.state(self.prefix + v) for v in self._native_values()}
        return {value: state for value, state in found.items() if state is not None}

    def _counts(self) -> dict[str, ObserverState]:
        """What passed by every observer, native and in Python: elements, NaN, infinities."""
        return self.states() | self._python.counts()

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
        self._leave_unseen()
        grids = self.grids()
        products = {
            str(node.name)
            for node in nodes(self.float_model)
            if node.name in self.plan.integer and node.op_type in ("MatMul", "Gemm")
        }
        return Statistics(
            grids, self.factors(), self.channel_means(), self._spans(grids), frozenset(products)
        )

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
        seen = {v for v, observer in self.observers.items() if _has_seen(observer)} - masks
        self.plan = leave_unseen(self.float_model, self.plan, seen)
        self.sites = [
            site
            for site in self.sites
            if all(value.name in seen for value in (site.value, *site.between))
        ]

    def _spans(self, grids: dict[str, QParams]) -> dict[str, float]:
        """Root mean square of each histogram in steps of its grid."""
        found: dict[str, float] = {}
        for value, observer in self.observers.items():
            counts = getattr(observer, "histogram", None)
            if value in grids and counts is not None and counts.sum():
                low, high = float(observer.min_val), float(observer.max_val)  # type: ignore[attr-defined]
                centres = low + (np.arange(counts.size) + 0.5) * (high - low) / counts.size
                power = float(counts @ centres**2) / float(counts.sum())
                found[value] = float(np.sqrt(power) / grids[value].scale)
        return found

    def grids(self) -> dict[str, QParams]:
        """The grid of every value on codes, from the statistics.

        Raises:
            CalibrationError: no data was seen at all.
        """
        if not self.samples and self.observers:
            raise CalibrationError(
                "the prepared model has seen no data", hint="run calibrate, or call it on samples"
            )
        self._take_states()
        needed = {v.name: needed_range(v) for v in real_values(self.float_model)}
        roots = {
            v: _safe_qparams(o, needed[v]) for v, o in self.observers.items() if o.ch_axis is None
        }
        factors = self.factors()
        for site in (site for site in self.sites if site.makers):
            for value in (site.value, *site.between):
                observer = self.observers[value.name or ""]
                roots[value.name or ""] = _even_qparams(
                    observer, factors.get(site.value.name or "")
                )
        grids: dict[str, QParams] = {}
        for value in real_values(self.float_model):
            grid = self._grid(value, roots)
            if grid is not None:
                grids[value.name or ""] = grid
        return grids

    def _grid(self, value: ir.Value, roots: dict[str, QParams]) -> QParams | None:
        integer, absorbed = self.plan.integer, self.plan.absorbed
        root = grid_root(value, integer, absorbed)
        if root is not None:
            return roots.get(root.name or "")
        producer = value.producer()
        while producer is not None:
            row = find_row(producer)
            assert row is not None
            if row.output is OutputGrid.FIXED and row.fixed is not None:
                scale, zero = row.fixed
                return QParams(np.float32(scale), np.float32(zero), per_tensor_affine, quint8)  # type: ignore[arg-type]
            source = producer.inputs[row.data(producer)[0]]
            producer = source.producer() if source is not None else None
        return None

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
        return {name: recipe.weight for name, recipe in self.recipes.items() if recipe is not None}


def _has_seen(observer: ObserverBase) -> bool:
    """Whether the observer has met a finite value; one with fixed parameters needs none."""
    if type(observer).range is ObserverBase.range:
        return True
    return all(bool(np.isfinite(end).all()) for end in observer.range())


EVERYTHING = (-float("inf"), float("inf"))


def _safe_qparams(observer: ObserverBase, needed: tuple[float, float] = EVERYTHING) -> QParams:
    """The grid of an observer, within the range that readers tell apart.

    A range of zero width becomes [0, 1], where any step is right.
    """
    if needed == EVERYTHING:
        scale, zero_point = observer.calculate_qparams()
    else:
        low, high = (np.clip(end, *needed).astype(np.float32) for end in observer.range())
        scale, zero_point = calculate_qparams(
            low, high, observer.qscheme, observer.qdtype, observer.eps
        )
    if not np.all(scale > observer.eps):
        scale = np.where(scale > observer.eps, scale, np.float32(1 / 255)).astype(np.float32)
    return QParams(scale, zero_point, observer.qscheme, observer.qdtype, observer.ch_axis)


def _even_qparams(observer: ObserverBase, factor: NDArray[Any] | None) -> QParams:
    """One grid for all channels of a per-channel observer, after they were divided."""
    low, high = observer.range()
    factor = np.ones(1) if factor is None else factor
    whole = MinMaxObserver(per_tensor_affine, quint8)
    whole.forward(np.stack([low / factor, high / factor]))
    return _safe_qparams(whole)
