"""`lucid-fx diff | compare | print | bisect`: looking into models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import onnx_ir as ir
import typer

from lucid_fx.bisecting import bisect
from lucid_fx.calibration_data import CalibrationData
from lucid_fx.cli_options import (
    FormatOption,
    ModelFile,
    PrintAfterOption,
    RecipeOption,
    TargetOption,
)
from lucid_fx.comparing import compare
from lucid_fx.diffing import diff
from lucid_fx.errors import ConfigError
from lucid_fx.graph_module import GraphModule
from lucid_fx.ir.naming import near_matches
from lucid_fx.ir.printing import annotated_text, scope_text
from lucid_fx.passes.pipeline import GraphPass, watching
from lucid_fx.recipe import Recipe, read_recipe
from lucid_fx.tracing import trace
from lucid_fx.workflow import calibrate, convert_fx, fuse, prepare_fx

ROWS_SHOWN = 40

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, with nothing left out.")
]
DataOption = Annotated[
    Path, typer.Option("--data", metavar="DATA.npz", help="Samples, in the form of --calib.")
]


class Stage(StrEnum):
    """Values of --stage."""

    imported = "imported"
    fused = "fused"
    prepared = "prepared"
    converted = "converted"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("diff")(diff_command)
    app.command("compare")(compare_command)
    app.command("print")(print_command)
    app.command("bisect")(bisect_command)


def diff_command(
    a: Annotated[Path, typer.Argument(metavar="A", help="An ONNX file.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    as_json: JsonOption = False,
) -> None:
    """Show which nodes of two graphs were added, removed, rewritten or moved, and grids."""
    found = diff(a, b)
    typer.echo(found.to_json() if as_json else found.text(ROWS_SHOWN))


def compare_command(
    model: Annotated[Path, typer.Argument(metavar="FLOAT", help="The float model.")],
    quantized: Annotated[Path, typer.Argument(metavar="QUANT", help="Made from it.")],
    *,
    data: DataOption,
    top: Annotated[int, typer.Option("--top", min=1, help="Rows and culprits to show.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Measure the error of every tensor and layer, and name what causes it."""
    module = trace(model, allow_quantized=True)
    samples = CalibrationData(data, module.model.graph.inputs)
    found = compare(module, quantized, samples, top=top)
    typer.echo(found.to_json() if as_json else found.text(top))


def print_command(
    model: ModelFile,
    *,
    stage: Annotated[
        Stage | None, typer.Option("--stage", help="Run the pipeline up to here first.")
    ] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="NAME", help="Only the nodes in this scope.")
    ] = None,
    calib: Annotated[
        Path | None,
        typer.Option("--calib", metavar="DATA.npz", help="Samples, for --stage converted."),
    ] = None,
    format: FormatOption = None,
    target: TargetOption = None,
    recipe: RecipeOption = None,
    print_after: PrintAfterOption = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Print all numbers, so that the text reads back.")
    ] = False,
) -> None:
    """Print a graph as ONNX text, each node with the pass that made it."""
    settings = (Recipe() if recipe is None else read_recipe(recipe)).with_options(
        format=format.value if format else None, target=target
    )
    with printing_after(print_after, scope):
        module = _at_stage(model, stage, calib, settings)
    _echo(module.model, scope, weights)


def _at_stage(model: Path, stage: Stage | None, calib: Path | None, recipe: Recipe) -> GraphModule:
    """The model as it is after a stage of the pipeline."""
    if stage is Stage.converted and calib is None:
        raise ConfigError("--stage converted needs samples", hint="give --calib DATA.npz")
    module = trace(model, allow_quantized=stage in (None, Stage.imported))
    if stage in (None, Stage.imported):
        return module
    if stage is Stage.fused:
        return fuse(module, inplace=True)
    data = None if calib is None else CalibrationData(calib, module.model.graph.inputs)
    example = None if data is None else next(iter(data))
    mapping, target = recipe.mapping(), recipe.target
    prepared = prepare_fx(module, mapping, example, target=target, inplace=True)
    if stage is Stage.prepared or data is None:
        return prepared
    return convert_fx(calibrate(prepared, data), format=recipe.format, inplace=True)


def _echo(model: ir.Model, scope: str | None, weights: bool = False) -> None:
    if scope is None:
        typer.echo(annotated_text(model, weights=weights))
        return
    text = scope_text(model, scope)
    if not text:
        known = GraphModule(model).named_modules()
        names = [*known, *(name for inside in known.values() for name in inside)]
        raise ConfigError(f"no node or scope is named {scope!r}", hint=near_matches(scope, names))
    typer.echo(text)


@contextlib.contextmanager
def printing_after(wanted: str | None, scope: str | None = None) -> Iterator[None]:
    """Print the graph after a pass, by its name, or after every pass that changed it (``all``).

    Raises:
        ConfigError: no pass of that name has run.
    """
    ran: list[str] = []

    def after(graph_pass: GraphPass, model: ir.Model, changed: bool) -> None:
        ran.append(graph_pass.name)
        if wanted == graph_pass.name or (wanted == "all" and changed):
            typer.echo(f"# after {graph_pass.name}")
            typer.echo(
                annotated_text(model, weights=False) if scope is None else scope_text(model, scope)
            )

    if wanted is None:
        yield
        return
    with watching(after):
        yield
    if wanted != "all" and wanted not in ran:
        raise ConfigError(f"no pass {wanted!r} has run", hint=near_matches(wanted, ran))


def bisect_command(
    model: ModelFile,
    *,
    data: DataOption,
    bound: Annotated[
        float, typer.Option("--bound", metavar="DB", help="Least dB that the outputs must keep.")
    ] = 15.0,
    format: FormatOption = None,
    target: TargetOption = None,
    recipe: RecipeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the model after every pass, and name the first after which its numbers have moved."""
    settings = (Recipe() if recipe is None else read_recipe(recipe)).with_options(
        format=format.value if format else None, target=target
    )
    module = trace(model)
    samples = CalibrationData(data, module.model.graph.inputs)
    found = bisect(
        module, samples, settings.mapping(), bound=bound, target=settings.target,
        format=settings.format,
    )  # fmt: skip
    typer.echo(found.to_json() if as_json else found.text())
