"""From a model file and a data file to a quantized model file, or to nothing at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lucid_fx.calibration_data import CalibrationData
from lucid_fx.errors import ConfigError, LucidFxError
from lucid_fx.graph_module import GraphModule
from lucid_fx.inspecting import stored_bytes
from lucid_fx.ir.ledger import LedgerEntry
from lucid_fx.ir.provenance import origins
from lucid_fx.ir.walk import input_at, is_constant, is_op, nodes
from lucid_fx.mapping import recipes_by_node
from lucid_fx.native.library import cpu_isa
from lucid_fx.ops.table import ROWS, find_row
from lucid_fx.prepared import PreparedModule
from lucid_fx.recipe import Recipe, WeightsRecipe
from lucid_fx.target import find_target
from lucid_fx.tracing import trace
from lucid_fx.weight_only import quantize_weights
from lucid_fx.workflow import Progress, calibrate, convert_fx, prepare_fx

_WEIGHTED = {row.op_type for row in ROWS if row.weight is not None}


class NotQuantizedError(LucidFxError):
    """Nodes that should have been quantized stayed in float, and the user wanted all or nothing."""


@dataclass(frozen=True)
class FileResult:
    """What `quantize_file` did.

    Attributes:
        module: the quantized model, as written.
        target: name of the target.
        samples: number of calibration samples.
        bytes_float, bytes: sizes on disk, external data included.
    """

    module: GraphModule
    target: str
    samples: int
    bytes_float: int
    bytes: int


def quantize_file(
    model: Path,
    calib: Path,
    out: Path,
    recipe: Recipe | None = None,
    *,
    strict: bool = False,
    ledger: Path | None = None,
    allow_quantized: bool = False,
    progress: Progress | None = None,
) -> FileResult:
    """Quantize a file into a file; when anything fails, no file has changed.

    Args:
        model: the ONNX file.
        calib: the ``.npz`` file, see `CalibrationData`.
        out: where the quantized model goes.
        recipe: settings; None for the defaults.
        strict: refuse to leave ops with constant weights in float that nobody excluded.
        ledger: where the ledger goes as JSON; None for nowhere but the model's metadata.
        allow_quantized: see `trace`.
        progress: called after each sample.

    Raises:
        LucidFxError: with one clear sentence; `NotQuantizedError` only where ``strict``.
    """
    recipe = recipe or Recipe()
    find_target(recipe.target, cpu_isa())
    check_outputs({"--out": out, "--ledger": ledger}, [calib])
    traced = trace(model, allow_quantized=allow_quantized)
    samples = CalibrationData(calib, traced.model.graph.inputs)
    prepared = prepare_fx(
        traced, recipe.mapping(), next(iter(samples)), target=recipe.target, inplace=True
    )
    calibrate(prepared, samples, progress=progress)
    module = convert_fx(prepared, format=recipe.format)
    module.session()  # onnxruntime must take what we write
    if strict and (left := not_quantized(prepared, module)):
        raise NotQuantizedError(_told(left))
    before = stored_bytes(model)
    _write(module, out, ledger)
    return FileResult(module, prepared.target.name, prepared.samples, before, stored_bytes(out))


def quantize_weights_file(
    model: Path,
    out: Path,
    recipe: Recipe,
    calib: Path | None = None,
    *,
    strict: bool = False,
    ledger: Path | None = None,
    allow_quantized: bool = False,
    progress: Progress | None = None,
) -> FileResult:
    """Quantize the weights of a file into a file; when anything fails, no file has changed.

    Weights are read, quantized and written one by one, so memory stays small for any size.

    Args:
        model, out, ledger, strict, allow_quantized: see `quantize_file`.
        recipe: what the weights become.
        calib: the samples of GPTQ.
        progress: called after each weight.

    Raises:
        LucidFxError: see `quantize_file`.
    """
    check_outputs({"--out": out, "--ledger": ledger}, [model, *([] if calib is None else [calib])])
    traced = trace(model, allow_quantized=allow_quantized, mapped=True)
    samples = None if calib is None else CalibrationData(calib, traced.model.graph.inputs)
    weights, mapping = recipe.weights or WeightsRecipe(), recipe.weights_mapping()
    recipes = recipes_by_node(traced.model, mapping)
    wanted = [
        str(node.name)
        for node in nodes(traced.model)
        if is_op(node, "MatMul", "Gemm") and is_constant(input_at(node, 1))
        and recipes[str(node.name)] is not None
    ]  # fmt: skip
    module = quantize_weights(
        traced, op=weights.op or "auto", qconfig_mapping=mapping, data=samples, progress=progress
    )
    entries = [module.ledger[name] for name in wanted]
    if strict and (left := [entry for entry in entries if entry.status != "quantized"]):
        raise NotQuantizedError(_told(left))
    before = stored_bytes(model)
    _write(module, out, ledger)
    count = 0 if samples is None else len(samples)
    return FileResult(module, "onnxruntime", count, before, stored_bytes(out))


def not_quantized(prepared: PreparedModule, module: GraphModule) -> list[LedgerEntry]:
    """Source nodes with constant weights that nobody excluded, and that are still in float."""
    found: dict[str, LedgerEntry] = {}
    for node in nodes(prepared.float_model):
        row = find_row(node)
        if row is None or row.weight is None or not is_constant(input_at(node, row.weight)):
            continue
        if prepared.recipes.get(node.name or "") is None:
            continue
        for name in origins(node):
            entry = module.ledger[name] if name in module.ledger else None  # noqa: SIM401
            if entry and entry.op_type in _WEIGHTED and entry.status != "quantized":
                found[name] = entry
    return list(found.values())


def _told(left: list[LedgerEntry], shown: int = 3) -> str:
    told = "; ".join(f"{e.op_type} {e.node!r} ({e.reason})" for e in left[:shown])
    more = f"; and {len(left) - shown} more" if len(left) > shown else ""
    plural = "node was" if len(left) == 1 else "nodes were"
    return f"{len(left)} {plural} not quantized, nothing is written: {told}{more}"


def check_outputs(outputs: Mapping[str, Path | None], inputs: Sequence[Path] = ()) -> None:
    """Refuse before the work what could not be written after it.

    Args:
        outputs: option → file to be written.
        inputs: files that must not be overwritten.

    Raises:
        ConfigError: the folder is missing, the path is a folder or is taken.
    """
    taken = {path.resolve(): path for path in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir():
            raise ConfigError(f"{option}: {str(path)!r} is a folder, not a file")
        if not path.parent.is_dir():
            raise ConfigError(f"{option}: there is no folder {str(path.parent)!r}")
        if path.resolve() in taken:
            raise ConfigError(
                f"{option}: {str(path)!r} would overwrite {str(taken[path.resolve()])!r}"
            )
        taken[path.resolve()] = path


def _write(module: GraphModule, out: Path, ledger: Path | None) -> None:
    """Write the model and its ledger; each file is either the old or the whole new one."""
    if ledger is None:
        module.save(out)
        return
    with tempfile.TemporaryDirectory(dir=ledger.parent, prefix=f".{ledger.name}.") as folder:
        draft = Path(folder) / ledger.name
        draft.write_text(module.ledger.to_json() + "\n", encoding="utf-8")
        module.save(out)
        os.replace(draft, ledger)
