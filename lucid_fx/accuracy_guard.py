"""Measure what a converted model lost on samples, and step back where it lost too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.walk import nodes
from lucid_fx.ops.row import OutputGrid
from lucid_fx.ops.table import find_row
from lucid_fx.passes.choose_integer_regions import Plan
from lucid_fx.prepared import PreparedModule
from lucid_fx.runtime.session import Session
from lucid_fx.statistics import Statistics
from lucid_fx.target import Target

LEAST_SQNR_DB = 15.0
"""Below this signal-to-noise ratio of any output on the kept samples, nodes go back to float."""

Outputs = list[list[Any]]


def why_not_measured(target: Target, host: Target) -> str | None:
    """Why this machine's kernels tell nothing about the target; None where they do.

    Weights for a target whose kernels do not saturate keep all 8 bits, and would saturate here.
    """
    if not host.saturates or target.saturates:
        return None
    return (
        f"accuracy was not measured: 8-bit products saturate on this machine ({host.name}),"
        f" and do not on {target.name}"
    )


def float_outputs(prepared: PreparedModule) -> Outputs:
    """What the float model gives for each kept sample."""
    session = Session(prepared.float_model)
    return [session.run(feed) for feed in prepared.kept]


def output_sqnr(prepared: PreparedModule, model: ir.Model, truth: Outputs) -> dict[str, float]:
    """Signal-to-quantization-noise ratio of each float output, in dB, over the kept samples.

    Outputs that are constant, or not finite in the float model, tell nothing and are left out.
    """
    session = Session(model)
    results = [session.run(feed) for feed in prepared.kept]
    found: dict[str, float] = {}
    for index, name in enumerate(prepared.output_names):
        pairs = [
            (t[index], r[index]) for t, r in zip(truth, results, strict=True) if _is_float(t[index])
        ]
        ratio = _sqnr(pairs)
        if ratio is not None:
            found[name] = ratio
    return found


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.size > 0


def _sqnr(pairs: list[tuple[NDArray[Any], NDArray[Any]]]) -> float | None:
    signal = noise = 0.0
    for truth, result in pairs:
        known = np.isfinite(truth)
        exact, given = truth[known].astype(np.float64), result[known].astype(np.float64)
        signal += float(np.sum(exact**2))
        noise += float(np.sum((exact - given) ** 2)) if np.isfinite(given).all() else np.inf
    if signal == 0:
        return None
    return 10 * float(np.log10(signal / max(noise, signal * 1e-15)))


def retreats(prepared: PreparedModule, statistics: Statistics) -> Iterator[tuple[Plan, str]]:
    """Plans with ever fewer nodes on codes, each with what it gave up.

    First the ops that only join regions, then the weighted ops whose grids are coarsest for what
    flows through them, a quarter at a time, at last all.
    """
    plan, every = prepared.plan, {n.name: n for n in nodes(prepared.float_model)}
    kept = {name for name in plan.integer if _anchors_or_moves(every[name])}
    if kept != plan.integer:
        yield _reduced(plan, kept, statistics), "ops between weighted ones"
    anchors = [name for name in kept if _is_anchor(every[name])]
    anchors.sort(key=lambda name: _fidelity(every[name], statistics))
    quarter = max(1, -(-len(anchors) // 4))
    for count in range(quarter, len(anchors), quarter):
        yield _reduced(plan, kept - set(anchors[:count]), statistics), f"{count} weighted ops"
    yield _reduced(plan, set(), statistics), "all ops with static grids"
    yield replace(_reduced(plan, set(), statistics), dynamic=frozenset()), "all ops"


def _is_anchor(node: ir.Node) -> bool:
    row = find_row(node)
    return row is not None and row.anchor


def _anchors_or_moves(node: ir.Node) -> bool:
    row = find_row(node)
    return row is not None and (row.anchor or row.output is OutputGrid.SHARED)


def _reduced(plan: Plan, integer: set[str], statistics: Statistics) -> Plan:
    """The plan with fewer nodes on codes; matrix products that leave it become dynamic."""
    left = plan.integer - integer
    why = f"with it on codes an output fell below {LEAST_SQNR_DB:g} dB on calibration samples"
    return replace(
        plan,
        integer=frozenset(integer),
        dynamic=plan.dynamic | (left & statistics.matrix_products),
        absorbed=frozenset(plan.absorbed & integer) if integer else frozenset(),
        reasons=plan.reasons | dict.fromkeys(left, why),
    )


def _fidelity(node: ir.Node, statistics: Statistics) -> float:
    """How many steps of its grids the typical input and output of a node spans; small is bad."""
    values = [node.inputs[0], node.outputs[0]]
    spans = [statistics.spans.get(v.name or "", np.inf) for v in values if v is not None]
    return min(spans, default=np.inf)
