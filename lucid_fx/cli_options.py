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


class WeightsName(StrEnum):
    """Values of --weights."""

    int4 = "int4"
    uint4 = "uint4"
    int8 = "int8"
    uint8 = "uint8"
    int2 = "int2"
    uint2 = "uint2"


class MethodName(StrEnum):
    """Values of --weights-method."""

    rtn = "rtn"
    hqq = "hqq"
    gptq = "gptq"


class WeightsOpName(StrEnum):
    """Values of --weights-op."""

    auto = "auto"
    matmulint4 = "matmulint4"
    matmulnbits = "matmulnbits"


class ComputeName(StrEnum):
    """Values of --weights-compute."""

    int8 = "int8"
    float32 = "float32"


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")]
CalibOption = Annotated[
    Path | None,
    typer.Option(
        "--calib",
        metavar="DATA.npz",
        help="Calibration samples: arrays named <sample>/<input>, or one array for each input with"
        " the samples on axis 0. A few hundred typical samples are enough. Needed unless --weights"
        " is given.",
    ),
]
WeightsOption = Annotated[
    WeightsName | None,
    typer.Option(
        "--weights",
        help="Quantize only the weights of MatMul and Gemm, to codes of 4, 8 or 2 bits; those with"
        " a u have zero points. Needs no calibration.",
    ),
]
BlockOption = Annotated[
    int | None,
    typer.Option(
        "--block", help="With --weights: how many weights share a scale: 16, 32 (default) … 256."
    ),
]
MethodOption = Annotated[
    MethodName | None,
    typer.Option(
        "--weights-method",
        help="With --weights: rtn rounds to nearest (default), hqq refines scales and zero points,"
        " gptq makes up for errors on the samples of --calib.",
    ),
]
WeightsOpOption = Annotated[
    WeightsOpName | None,
    typer.Option(
        "--weights-op",
        help="With --weights: matmulint4 is fastest and needs our native library, matmulnbits runs"
        " on any onnxruntime with the same weights; auto (default) looks for the library.",
    ),
]
ComputeOption = Annotated[
    ComputeName | None,
    typer.Option(
        "--weights-compute",
        help="With --weights: int8 (default) rounds activations to 8 bits block by block, float32"
        " does not.",
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
PrintAfterOption = Annotated[
    str | None,
    typer.Option(
        "--print-after",
        metavar="PASS",
        help="Print the graph after this pass; all: after each that changed it.",
    ),
]
