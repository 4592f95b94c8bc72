"""prepare_fx, calibrate, convert_fx, quantize: the only module that knows passes and runtime."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sized
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from lucid_fx.errors import CalibrationError, ConfigError, DataError, LucidFxWarning
from lucid_fx.graph_module import Feed, GraphModule, clone_model
from lucid_fx.ir.ledger import METADATA_KEY, ledger_of
from lucid_fx.ir.naming import in_scope, near_matches
from lucid_fx.ir.serde import infer_shapes, sample_shapes, shapes_for
from lucid_fx.ir.walk import graphs, nodes
from lucid_fx.passes import FLOAT
from lucid_fx.passes.absorb_activation_range import AbsorbActivationRange
from lucid_fx.passes.assign_channels_last import AssignChannelsLast
from lucid_fx.passes.choose_integer_regions import Plan, choose_integer_regions
from lucid_fx.passes.eliminate_dead import EliminateDead
from lucid_fx.passes.equalize_channels import EqualizeChannels
from lucid_fx.passes.insert_qdq import InsertQDQ
from lucid_fx.passes.lower_to_qlinear import LowerToQLinear
from lucid_fx.passes.pad_depthwise_channels import PadDepthwiseChannels
from lucid_fx.passes.pipeline import GraphPass, run_pipeline
from lucid_fx.passes.quantize_lstm_dynamic import QuantizeLSTMDynamic
from lucid_fx.passes.quantize_matmul_dynamic import QuantizeMatMulDynamic
from lucid_fx.prepared import PreparedModule
from lucid_fx.quantization import QConfig, QConfigMapping, get_default_qconfig_mapping
from lucid_fx.runtime.native_library import cpu_isa
from lucid_fx.target import Target, find_target
from lucid_fx.tracing import trace

Format = Literal["qoperator", "qdq"]
Nonfinite = Literal["warn", "error", "ignore"]
Progress = Callable[[int, int | None], None]
"""Called after each sample with the number done and the number in all, where known."""


def fuse(model: Any, *, inplace: bool = False) -> GraphModule:
    """Run the float passes: fold, fuse and clean; the numbers stay, up to rounding.

    Args:
        model: anything that `trace` takes.
        inplace: change a given `GraphModule` instead of a copy.
    """
    module = model if inplace and isinstance(model, GraphModule) else trace(model)
    run_pipeline(module.model, FLOAT)
    infer_shapes(module.model)
    module._session = None
    return module


def prepare_fx(
    model: Any,
    qconfig_mapping: QConfigMapping | QConfig | None = None,
    example_inputs: Any = None,
    *,
    target: str | Target = "auto",
    inplace: bool = False,
) -> PreparedModule:
    """Decide what computes on codes, and put observers where a range must be known.

    Args:
        model: anything that `trace` takes.
        qconfig_mapping: recipes by node, op type or globally; None for the defaults.
        example_inputs: one sample; tells shapes, which sharpen the choice of regions.
        target: where the model will run: ``"auto"`` (this machine) or a name in ``TARGETS``.
        inplace: change a given `GraphModule` instead of a copy.

    Raises:
        ConfigError: a name or type in the mapping that matches nothing.
    """
    mapping = _mapping(qconfig_mapping)
    module = model if inplace and isinstance(model, GraphModule) else trace(model)
    known = [(node.name or "", node.op_type) for node in nodes(module.model)]
    _check_mapping(mapping, known)
    module = fuse(module, inplace=True)
    sample = {} if example_inputs is None else module.feed(example_inputs)
    shapes = shapes_for(module.model, {name: array.shape for name, array in sample.items()})
    recipes = _recipes(module.model, mapping)
    excluded = {name: "the configuration leaves it in float" for name, r in recipes.items() if not r}
    chosen = find_target(target, cpu_isa())
    plan = choose_integer_regions(module.model, chosen, excluded, shapes)
    return PreparedModule(module.model, plan, recipes, chosen, shapes)


def calibrate(
    prepared: PreparedModule,
    data: Iterable[Any],
    *,
    progress: Progress | None = None,
    nonfinite: Nonfinite = "warn",
) -> PreparedModule:
    """Run samples through a prepared model; the same as calling it in a loop.

    Args:
        prepared: from `prepare_fx`; gathers the statistics.
        data: arrays, tuples in input order, or name → array mappings.
        progress: called after each sample.
        nonfinite: what to do about NaN and infinities, which the statistics never count.

    Raises:
        DataError: no samples, or one that does not fit the model (its number is named).
        CalibrationError: ``nonfinite="error"`` and some were seen.
    """
    return _calibrate(prepared, data, _length(data), progress, nonfinite)


def _calibrate(
    prepared: PreparedModule,
    data: Iterable[Any],
    total: int | None,
    progress: Progress | None,
    nonfinite: Nonfinite,
) -> PreparedModule:
    seen = 0
    for number, sample in enumerate(data):
        try:
            feed = prepared.feed(sample)
        except DataError as error:
            raise DataError(f"calibration sample {number}: {error}") from None
        prepared._run(feed)
        seen = number + 1
        if progress is not None:
            progress(seen, total)
    if not seen:
        raise DataError("there are no calibration samples", hint="give at least one")
    if nonfinite != "ignore":
        prepared.report_nonfinite(error=nonfinite == "error")
    return prepared


def convert_fx(
    prepared: PreparedModule, *, format: Format = "qoperator", inplace: bool = False
) -> GraphModule:
    """Turn a calibrated model into one that computes on codes.

    Args:
        prepared: calibrated with `calibrate`, or by calling it.
        format: ``"qoperator"`` (QLinear ops, fastest) or ``"qdq"`` (Q/DQ pairs, portable).
        inplace: use up ``prepared`` instead of a copy.

    Raises:
        CalibrationError: it has never seen data.
    """
    if format not in ("qoperator", "qdq"):
        raise ConfigError(f"there is no format {format!r}", hint="known are qoperator and qdq")
    plan, grids = prepared.plan, prepared.grids()
    model = prepared.float_model if inplace else clone_model(prepared.float_model)
    for name, reason in plan.reasons.items():
        node = next((n for n in nodes(model) if n.name == name), None)
        if node is not None:
            ledger_of(model).record(node, "float", reason, "choose-integer-regions")
    passes = _convert_passes(prepared, grids, format)
    with sample_shapes(model, prepared.shapes):
        run_pipeline(model, passes)
    ledger_of(model).close(model)
    return GraphModule(model)


def _convert_passes(
    prepared: PreparedModule, grids: dict[str, Any], format: Format
) -> tuple[GraphPass, ...]:
    plan, target, weights = prepared.plan, prepared.target, prepared.weight_factories()
    reference: tuple[GraphPass, ...] = (
        # first: its sites are those of the float graph that was observed
        EqualizeChannels(prepared.factors()),
        # a Relu between Conv and Q would keep the Conv in float
        AbsorbActivationRange(plan.absorbed),
        # before weights become codes: the kernels want whole vectors of channels
        PadDepthwiseChannels(plan.integer, target.depthwise_width),
        # before Q and DQ: takes whole MatMul + Add pairs
        QuantizeMatMulDynamic(plan.dynamic, weights, target, portable=format == "qdq"),
        QuantizeLSTMDynamic(plan.dynamic, weights, target),
        # the reference form
        InsertQDQ(plan.integer, grids, weights, target, prepared.channel_means()),
    )
    if format == "qdq":
        return (*reference, EliminateDead())
    return (
        *reference,
        LowerToQLinear(plan.integer),  # every DQ → op → Q becomes one op
        AssignChannelsLast(),  # after lowering: QLinearConv is fast channels-last only
        EliminateDead(),  # float weights that the codes replaced
    )


def quantize(
    model: Any,
    data: Iterable[Any],
    qconfig_mapping: QConfigMapping | QConfig | None = None,
    *,
    target: str | Target = "auto",
    format: Format = "qoperator",
    progress: Progress | None = None,
    nonfinite: Nonfinite = "warn",
) -> GraphModule:
    """Trace, fuse, prepare, calibrate and convert in one call.

    Args:
        model: anything that `trace` takes.
        data: calibration samples, see `calibrate`.
        qconfig_mapping, target: see `prepare_fx`.
        format: see `convert_fx`.
        progress, nonfinite: see `calibrate`.
    """
    samples = iter(data)
    first = next(samples, None)
    if first is None:
        raise DataError("there are no calibration samples", hint="give at least one")
    module = trace(model)
    example = module.feed(first)
    prepared = prepare_fx(module, qconfig_mapping, example, target=target, inplace=True)
    every = itertools.chain([first], samples)
    _calibrate(prepared, every, _length(data), progress, nonfinite)
    return convert_fx(prepared, format=format, inplace=True)


def _length(data: Iterable[Any]) -> int | None:
    return len(data) if isinstance(data, Sized) else None


def _mapping(given: QConfigMapping | QConfig | None) -> QConfigMapping:
    if given is None:
        return get_default_qconfig_mapping()
    if isinstance(given, QConfig):
        return QConfigMapping().set_global(given)
    return given


def _check_mapping(mapping: QConfigMapping, known: list[tuple[str, str]]) -> None:
    names, types = {name for name, _ in known}, {op_type for _, op_type in known}
    for name in mapping.module_names:
        if not any(in_scope(found, name) for found in names):
            raise ConfigError(
                f"no node or scope is named {name!r}", hint=near_matches(name, names)
            )
    for op_type in mapping.object_types:
        if op_type not in types:
            raise ConfigError(
                f"the model has no node of type {op_type!r}", hint=near_matches(op_type, types)
            )


def _recipes(model: ir.Model, mapping: QConfigMapping) -> dict[str, QConfig | None]:
    """The recipe of each node, by the names and types that its source nodes had."""
    ledger = ledger_of(model)
    found: dict[str, QConfig | None] = {}
    from lucid_fx.ir.provenance import origins

    for node in nodes(model):
        sources = origins(node) or (node.name or "",)
        candidates = []
        for source in sources:
            op_type = ledger[source].op_type if source in ledger else node.op_type
            scope = _innermost(mapping, source)
            candidates.append(mapping.get_qconfig(op_type, scope or source))
        found[node.name or ""] = None if None in candidates else candidates[0]
    return found


def _innermost(mapping: QConfigMapping, name: str) -> str | None:
    """The most specific name or scope in the mapping that holds a node."""
    scopes = [scope for scope in mapping.module_names if in_scope(name, scope)]
    return max(scopes, key=len, default=None)
