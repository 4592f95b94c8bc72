"""Options of `lucid-fx quantize`, with their help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lucid_fx.target import TARGETS


class FormatName(StrEnum):
    """Values of --format."""

    qoperator = "qoperator"
    qdq = "qdq"


class ObserverName(StrEnum):
    """Values of --observer."""

    minmax = "minmax"
    histogram = "histogram"
    moving_average = "moving-average"


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
CalibOption = Annotated[
    Path,
    typer.Option(
        "--calib",
        metavar="DATA.npz",
        help="Calibration samples: arrays named <sample>/<input>, or one array for each input with"
        " the samples on axis 0. A few hundred typical samples are enough.",
    ),
]
OutOption = Annotated[
    Path, typer.Option("--out", "-o", metavar="OUT", help="Where the quantized model goes.")
]
FormatOption = Annotated[
    FormatName | None,
    typer.Option(
        "--format", help="qoperator: QLinear ops, fastest (default). qdq: Q/DQ pairs, portable."
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help=f"Where the model will run: auto (this machine, default), {', '.join(TARGETS)}.",
    ),
]
ObserverOption = Annotated[
    ObserverName | None,
    typer.Option(
        "--observer",
        help="How activation ranges are found: histogram clips for the least squared error"
        " (default), minmax takes the extremes, moving-average smooths them.",
    ),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="NAME", help="Leave this node or scope in float. Can be repeated."
    ),
]
ExcludeOpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude-op", metavar="TYPE", help="Leave all nodes of an op type in float, as Softmax."
    ),
]
RecipeOption = Annotated[
    Path | None,
    typer.Option(
        "--recipe",
        metavar="FILE",
        help="JSON or TOML with the same settings, and with observers for single nodes or op types"
        " (see the README). The command line wins over it.",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Fail (status 3, nothing written) when an op with constant weights stays in float"
        " that was not excluded.",
    ),
]
LedgerOption = Annotated[
    Path | None,
    typer.Option(
        "--ledger", metavar="FILE.json", help="Also write what happened to every node, and why."
    ),
]
AllowOption = Annotated[
    bool,
    typer.Option(
        "--allow-quantized", help="Take a model with quantized nodes, and keep those as they are."
    ),
]
