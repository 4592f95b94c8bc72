"""From what observers saw to what the passes need: grids, channel factors, channel means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.feeds import Feed
from lucid_fx.graph_module import clone_model
from lucid_fx.ops.row import OutputGrid
from lucid_fx.ops.table import find_row, needed_range
from lucid_fx.passes.choose_integer_regions import Plan, grid_root, real_values
from lucid_fx.passes.equalization_sites import Site
from lucid_fx.passes.equalize_channels import channel_factors
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.passes.tap_channel_means import TapChannelMeans, mean_name
from lucid_fx.quantization import (
    MinMaxObserver,
    ObserverBase,
    QParams,
    calculate_qparams,
    per_tensor_affine,
    quint8,
)
from lucid_fx.runtime.session import Session

Observers = Mapping[str, ObserverBase]
"""Value name → its observer."""

EVERYTHING = (-float("inf"), float("inf"))


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


def site_factors(sites: Sequence[Site], observers: Observers) -> dict[str, NDArray[Any]]:
    """Channel factors of each site whose ranges are known."""
    ranges = {v: o.range() for v, o in observers.items() if o.ch_axis is not None}
    found = {site.value.name or "": channel_factors(site, ranges) for site in sites}
    return {value: factor for value, factor in found.items() if factor is not None}


def value_grids(
    model: ir.Model,
    plan: Plan,
    observers: Observers,
    sites: Sequence[Site],
    factors: Mapping[str, NDArray[Any]],
) -> dict[str, QParams]:
    """The grid of every value that is made or read on codes."""
    needed = {value.name: needed_range(value) for value in real_values(model)}
    roots = {v: safe_qparams(o, needed[v]) for v, o in observers.items() if o.ch_axis is None}
    for site in (site for site in sites if site.makers or site.axis == 1):
        for value in (site.value, *site.between):
            observer = observers[value.name or ""]
            roots[value.name or ""] = even_qparams(observer, factors.get(site.value.name or ""))
    found = {value.name or "": _grid(value, plan, roots) for value in real_values(model)}
    return {value: grid for value, grid in found.items() if grid is not None}


def _grid(value: ir.Value, plan: Plan, roots: Mapping[str, QParams]) -> QParams | None:
    root = grid_root(value, plan.integer, plan.absorbed)
    if root is not None:
        return roots.get(root.name or "")
    producer = value.producer()
    while producer is not None:
        row = find_row(producer)
        assert row is not None
        if row.output is OutputGrid.FIXED and row.fixed is not None:
            scale, zero = (np.asarray(number, np.float32) for number in row.fixed)
            return QParams(scale, zero, per_tensor_affine, quint8)
        source = producer.inputs[row.data(producer)[0]]
        producer = source.producer() if source is not None else None
    return None


def safe_qparams(observer: ObserverBase, needed: tuple[float, float] = EVERYTHING) -> QParams:
    """The grid of an observer, within the range that readers tell apart.

    A range of zero width becomes [0, 1], where any step is right.
    """
    if needed == EVERYTHING or not has_range(observer):
        scale, zero_point = observer.calculate_qparams()
    else:
        low, high = (np.clip(end, *needed).astype(np.float32) for end in observer.range())
        scale, zero_point = calculate_qparams(
            low, high, observer.qscheme, observer.qdtype, observer.eps
        )
    if not np.all(scale > observer.eps):
        scale = np.where(scale > observer.eps, scale, np.float32(1 / 255)).astype(np.float32)
    return QParams(scale, zero_point, observer.qscheme, observer.qdtype, observer.ch_axis)


def even_qparams(observer: ObserverBase, factor: NDArray[Any] | None) -> QParams:
    """One grid for all channels of a per-channel observer, after they were divided."""
    low, high = observer.range()
    factor = np.ones(1) if factor is None else factor
    whole = MinMaxObserver(per_tensor_affine, quint8)
    whole.forward(np.stack([low / factor, high / factor]))
    return safe_qparams(whole)


def has_range(observer: ObserverBase) -> bool:
    """Whether an observer derives its grid from a range, and not from constants."""
    return type(observer).range is not ObserverBase.range


def has_seen(observer: ObserverBase) -> bool:
    """Whether the observer has met a finite value; one with fixed parameters needs none."""
    if not has_range(observer):
        return True
    return all(bool(np.isfinite(end).all()) for end in observer.range())


def grid_spans(observers: Observers, grids: Mapping[str, QParams]) -> dict[str, float]:
    """Root mean square of each histogram in steps of its grid."""
    found: dict[str, float] = {}
    for value, observer in observers.items():
        counts = getattr(observer, "histogram", None)
        if value in grids and counts is not None and counts.sum():
            low, high = (float(end) for end in MinMaxObserver.range(observer))  # type: ignore[arg-type]
            centres = low + (np.arange(counts.size) + 0.5) * (high - low) / counts.size
            power = float(counts @ centres**2) / float(counts.sum())
            found[value] = float(np.sqrt(power) / grids[value].scale)
    return found


def channel_means(
    model: ir.Model,
    plan: Plan,
    samples: Sequence[Feed],
    factors: Mapping[str, NDArray[Any]],
) -> dict[str, NDArray[Any]]:
    """Mean of each channel of what weighted nodes with a bias read, after its division.

    Args:
        model: the float model; its main graph only, since bodies cannot give further outputs.
        plan: which nodes compute on codes.
        samples: a few feeds to run.
        factors: value name → what each channel is divided by.
    """
    wanted: dict[str, int] = {}
    for node in model.graph:
        row = find_row(node)
        if node.name in plan.integer and row is not None and row.bias is not None:
            source = node.inputs[0]
            if source is not None and source.name:
                wanted[source.name] = -1 if node.op_type == "Gemm" else 1
    if not wanted or not samples:
        return {}
    tapped = clone_model(model)
    run_pipeline(tapped, (TapChannelMeans(wanted),))
    session = Session(tapped)
    values = [value for value in wanted if mean_name(value) in session.output_names]
    rows = [session.run(feed, [mean_name(value) for value in values]) for feed in samples]
    means = {v: np.mean(of_v, axis=0) for v, *of_v in zip(values, *rows, strict=True)}
    means = {v: mean / factors[v] if v in factors else mean for v, mean in means.items()}
    return {v: mean for v, mean in means.items() if np.isfinite(mean).all()}
