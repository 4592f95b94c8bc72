"""prepare_fx, calibrate, convert_fx, quantize: the only module that knows passes and runtime."""

from __future__ import annotations

import contextlib
import copy
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Literal

import onnx_ir as ir

from lucid_fx.accuracy_guard import (
    LEAST_SQNR_DB,
    float_outputs,
    output_sqnr,
    retreats,
    why_not_measured,
)
from lucid_fx.conversion import Format, convert
from lucid_fx.errors import ConfigError, DataError, LucidFxWarning
from lucid_fx.feeds import Feed
from lucid_fx.graph_module import GraphModule
from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.serde import infer_shapes, shapes_for
from lucid_fx.mapping import check_mapping, recipes_by_node
from lucid_fx.native.library import cpu_isa
from lucid_fx.passes import FLOAT
from lucid_fx.passes.choose_integer_regions import choose_integer_regions
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.prepared import PreparedModule
from lucid_fx.quantization import (
    PlaceholderObserver,
    QConfig,
    QConfigMapping,
    get_default_qconfig_mapping,
    per_tensor_affine,
)
from lucid_fx.recording import record
from lucid_fx.target import Target, find_target
from lucid_fx.tracing import trace

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
    module.changed()
    return module


def prepare_fx(
    model: Any,
    qconfig_mapping: QConfigMapping[QConfig] | QConfig | None = None,
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
        ConfigError: a name or type in the mapping that matches nothing, or a recipe whose grids no
            kernel takes.
    """
    mapping = _mapping(qconfig_mapping)
    module = model if inplace and isinstance(model, GraphModule) else trace(model)
    check_mapping(mapping, module.model, QConfig)
    module = fuse(module, inplace=True)
    sample = {} if example_inputs is None else module.feed(example_inputs)
    shapes = shapes_for(module.model, _shapes(sample))
    recipes = recipes_by_node(module.model, mapping)
    excluded = {
        name: "the configuration leaves it in float" for name, r in recipes.items() if not r
    }
    _check_recipes(recipes)
    chosen = find_target(target, cpu_isa())
    unclipped = frozenset(name for name, recipe in recipes.items() if not _clips(recipe))
    plan = choose_integer_regions(module.model, chosen, excluded, shapes, unclipped)
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
    with contextlib.closing(record(prepared, _feeds(prepared, data))) as counts:
        for done in counts:
            while seen < done:
                seen += 1
                if progress is not None:
                    progress(seen, total)
    if not seen:
        raise DataError("there are no calibration samples", hint="give at least one")
    if nonfinite != "ignore":
        prepared.report_nonfinite(error=nonfinite == "error")
    return prepared


def _feeds(prepared: PreparedModule, data: Iterable[Any]) -> Iterator[Feed]:
    for number, sample in enumerate(data):
        try:
            yield prepared.feed(sample)
        except DataError as error:
            raise DataError(f"calibration sample {number}: {error}") from None


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
    if not inplace:
        prepared = copy.copy(prepared)  # its plan is about to shrink to what was seen
    statistics = prepared.statistics()
    model = convert(prepared, prepared.plan, statistics, format)
    if not prepared.kept:
        return GraphModule(model)
    blind = why_not_measured(prepared.target, host=find_target("auto", cpu_isa()))
    if blind is not None:
        ledger_of(model).note(blind)
        return GraphModule(model)
    truth, gave_up = float_outputs(prepared), ""
    ratios = output_sqnr(prepared, model, truth)
    for plan, what in retreats(prepared, statistics):
        if min(ratios.values(), default=LEAST_SQNR_DB) >= LEAST_SQNR_DB:
            break
        model, gave_up = convert(prepared, plan, statistics, format), what
        ratios = output_sqnr(prepared, model, truth)
    _note_accuracy(model, ratios, gave_up, len(prepared.kept))
    return GraphModule(model)


def _note_accuracy(model: ir.Model, ratios: dict[str, float], gave_up: str, samples: int) -> None:
    """Say in the ledger what the outputs keep, and warn of what had to stay in float for it."""
    kept = ", ".join(f"{name} {ratio:.1f} dB" for name, ratio in list(ratios.items())[:4])
    if kept:
        ledger_of(model).note(f"signal to noise of the outputs on {samples} samples: {kept}")
    if gave_up:
        text = f"{gave_up} stay in float: on codes an output kept less than {LEAST_SQNR_DB:g} dB"
        ledger_of(model).note(text)
        warnings.warn(text, LucidFxWarning, stacklevel=3)


def quantize(
    model: Any,
    data: Iterable[Any],
    qconfig_mapping: QConfigMapping[QConfig] | QConfig | None = None,
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
    module = trace(model, first)
    example = module.feed(first)
    prepared = prepare_fx(module, qconfig_mapping, example, target=target, inplace=True)
    every = itertools.chain([first], samples)
    _calibrate(prepared, every, _length(data), progress, nonfinite)
    return convert_fx(prepared, format=format, inplace=True)


def _check_recipes(recipes: dict[str, QConfig | None]) -> None:
    """Integer kernels take 8-bit codes, and activations on one grid a tensor."""
    for name, recipe in recipes.items():
        if recipe is None:
            continue
        activation, weight = recipe.activation_observer(), recipe.weight_observer()
        if activation.qscheme.is_per_channel:
            raise ConfigError(
                "no kernel takes activations on a grid for each channel"
                f" ({activation.qscheme.value})",
                node=name,
                hint="give its activations a per-tensor qscheme; weights can be per channel",
            )
        for what, observer in (("activations", activation), ("weights", weight)):
            if isinstance(observer, PlaceholderObserver):
                raise ConfigError(
                    f"a {type(observer).__name__} collects no statistics, so the {what} would get"
                    " no grid",
                    node=name,
                    hint="give an observer that does, or None as the recipe to leave it in float",
                )
            if observer.qdtype.storage not in ("int8", "uint8"):
                raise ConfigError(
                    f"no kernel takes {what} on {observer.qdtype.name}",
                    node=name,
                    hint="give a qdtype whose storage is int8 or uint8",
                )


def _clips(recipe: QConfig | None) -> bool:
    """Whether activation grids end at the ends of the observed range, as affine ones do."""
    return recipe is not None and recipe.activation_observer().qscheme is per_tensor_affine


def _shapes(sample: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays in a sample; sequences and optional values have none."""
    return {name: array.shape for name, array in sample.items() if hasattr(array, "shape")}


def _length(data: Iterable[Any]) -> int | None:
    return len(data) if isinstance(data, Sized) else None


def _mapping(given: QConfigMapping[QConfig] | QConfig | None) -> QConfigMapping[QConfig]:
    if given is None:
        return get_default_qconfig_mapping()
    if isinstance(given, QConfig):
        return QConfigMapping[QConfig]().set_global(given)
    return given
