"""`lucid-fx explain | report`: what onnxruntime really runs, and all of it on one page."""

from __future__ import annotations

import itertools
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lucid_fx.calibration_data import CalibrationData
from lucid_fx.cli_options import ModelFile, TargetOption
from lucid_fx.explaining import FindingsError, explain
from lucid_fx.quantize_file import check_outputs
from lucid_fx.reporting import report
from lucid_fx.tracing import trace

TIMED_SAMPLES = 8
"""Samples that are enough for times; more are left out."""


class Provider(StrEnum):
    """Values of --provider."""

    cpu = "cpu"
    coreml = "coreml"


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("explain")(explain_command)
    app.command("report")(report_command)


def explain_command(
    model: ModelFile,
    *,
    float_model: Annotated[
        Path | None,
        typer.Option("--float", metavar="FLOAT", help="What it was made from, to time beside it."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DATA.npz", help="Samples to time on, as for --calib."),
    ] = None,
    provider: Annotated[
        Provider,
        typer.Option("--provider", help="coreml: forecast what CoreML would take, on any machine."),
    ] = Provider.cpu,
    target: TargetOption = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", metavar="RULE", help="Exit with status 3 on such a finding."),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of each table.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell what onnxruntime makes of every node, what that costs, and how to fix it."""
    module = trace(model, allow_quantized=True)
    samples = () if data is None else CalibrationData(data, module.model.graph.inputs)
    found = explain(
        module,
        float_model=float_model,
        data=list(itertools.islice(samples, TIMED_SAMPLES)),
        provider=provider.value,
        target=target or "auto",
    )
    failing = found.failing(fail_on or ())
    typer.echo(found.to_json() if as_json else found.to_text(rows))
    if failing:
        raise FindingsError(failing)


def report_command(
    model: Annotated[Path, typer.Argument(metavar="FLOAT", help="The float model.")],
    quantized: Annotated[Path, typer.Argument(metavar="QUANT", help="Made from it.")],
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT.html", help="Where the report goes.")
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DATA.npz", help="Samples, for errors, times, histograms."),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="At most so many.")] = 64,
) -> None:
    """Write one HTML file that tells all: graphs side by side, ledger, errors, times."""
    check_outputs({"--out": out}, [model, quantized])
    module = trace(model, allow_quantized=True)
    given = () if data is None else CalibrationData(data, module.model.graph.inputs)
    report(module, quantized, out, data=given, samples=samples)
    typer.echo(f"written {out}")
