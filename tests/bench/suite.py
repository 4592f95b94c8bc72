"""Real models, quantized by us and by onnxruntime's own tool: score, size, speed, what runs.

    python tests/bench/suite.py [--model NAME …] [--tool NAME …] [--quick] [--json]
    python tests/bench/suite.py --model NAME --quantized FILE [--json]

Latency ratios are int8 time / float time, so less than 1 is faster; they are medians over runs
that alternate in this process, by CPU time at one thread and wall time at two. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.version_converter
import onnxruntime as ort
from _optimised import count_optimised
from _timing import alternating_ratio, describe_cpu
from rich.console import Console
from rich.table import Table

from lucid_fx import models
from lucid_fx.models import Feed, RealModel, Run

Quantizer = Callable[[Path, Sequence[Feed], Path], None]

# How much of each evaluation set --quick looks at.
QUICK = {
    "fmnist_dw": 500,
    "byte_lm": 16,
    "ppocr_rec": 30,
    "ppocr_cls": 60,
    "ppocr_det": 6,
    "silero_vad": 800,
    "silero_vad_ifless": 800,
    "minilm_l3": 40,
}


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure."""

    samples: int
    seconds: float
    quick: bool

    def limit(self, model: RealModel) -> int | None:
        """How many items of the evaluation set to score on."""
        return QUICK[model.name] if self.quick else None


def open_run(path: Path, threads: int = 1) -> Run:
    """Open a session on the CPU; its threads rest when it has nothing to do."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def quantize_lucid_fx(source: Path, feeds: Sequence[Feed], target: Path) -> None:
    """Quantize with default settings."""
    import lucid_fx

    lucid_fx.quantize(source, feeds).save(target)


def quantize_lucid_fx_qdq(source: Path, feeds: Sequence[Feed], target: Path) -> None:
    """Quantize with default settings, as a Q/DQ graph."""
    import lucid_fx

    lucid_fx.quantize(source, feeds, format="qdq").save(target)


def quantize_stock(form: str) -> Quantizer:
    """Give onnxruntime's static quantizer: u8 activations, s8 weights per channel in 7 bits."""

    def quantize(source: Path, feeds: Sequence[Feed], target: Path) -> None:
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

        with contextlib.chdir(target.parent):  # it leaves files where it runs
            quantize_static(
                _prepare_stock(source, target.parent),
                target,
                _Reader(feeds),
                quant_format=QuantFormat[form],
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                per_channel=True,
                reduce_range=True,
            )

    return quantize


def _prepare_stock(source: Path, folder: Path) -> Path:
    """Do what the stock tool asks for first, as far as it can: opset 13, shapes, optimisation."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model = onnx.load(source)
    if next(i.version for i in model.opset_import if i.domain in {"", "ai.onnx"}) < 13:
        # per-channel DequantizeLinear came with 13; before it, the tool writes an illegal model
        source, raised = folder / "opset13.onnx", onnx.version_converter.convert_version(model, 13)
        onnx.save(raised, source)
    for skip_symbolic in (False, True):
        try:
            quant_pre_process(source, folder / "ready.onnx", skip_symbolic_shape=skip_symbolic)
        except Exception:  # it raises bare Exception; the model as it is remains
            continue
        return folder / "ready.onnx"
    return source


class _Reader:
    """The calibration data as onnxruntime.quantization wants it."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds: Iterator[Feed] = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


TOOLS: dict[str, Quantizer] = {
    "lucid_fx": quantize_lucid_fx,
    "stock_qdq": quantize_stock("QDQ"),
    "stock_qoperator": quantize_stock("QOperator"),
    "lucid_fx_qdq": quantize_lucid_fx_qdq,
}
DEFAULT_TOOLS = ("lucid_fx", "stock_qdq", "stock_qoperator")
MEASURED = (
    *("score", "size_ratio", "latency_ratio_1", "latency_ratio_2"),
    *("integer_nodes", "float_nodes", "leftover_qdq"),
)


class Baseline:
    """A model in float: its score, and its sessions to run against."""

    def __init__(self, model: RealModel, effort: Effort) -> None:
        self.model = model
        self.effort = effort
        self.path = model.path().resolve()
        self.feeds = model.latency_feeds()
        self.runs = {threads: open_run(self.path, threads) for threads in (1, 2)}
        self.score = self.scores(self.runs[1])[model.metric]

    def scores(self, run: Run) -> dict[str, float]:
        """Score a session of this model."""
        return self.model.score(run, limit=self.effort.limit(self.model), reference=self.runs[1])

    def latency_ratio(self, path: Path, threads: int) -> float:
        """Time a quantized file against the float one."""
        clock = time.thread_time if threads == 1 else time.perf_counter
        run, seconds = open_run(path, threads), self.effort.seconds
        return alternating_ratio(run, self.runs[threads], self.feeds, seconds=seconds, clock=clock)

    def row(self, tool: str, path: Path) -> dict[str, Any]:
        """Measure a quantized file."""
        scores = self.scores(open_run(path))
        counts = dataclasses.asdict(count_optimised(path))
        ops = counts.pop("ops")
        return {
            "model": self.model.name,
            "tool": tool,
            "score_float": self.score,
            "score": scores[self.model.metric],
            "size_ratio": path.stat().st_size / self.path.stat().st_size,
            "latency_ratio_1": self.latency_ratio(path, 1),
            "latency_ratio_2": self.latency_ratio(path, 2),
            **counts,
            "metric": self.model.metric,
            "scores": scores,
            "cpu": describe_cpu(),
            "ops": ops,
        }

    def failure(self, tool: str, error: Exception) -> dict[str, Any]:
        """Report that a tool gave nothing to measure."""
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        row: dict[str, Any] = {"model": self.model.name, "tool": tool, "score_float": self.score}
        return row | dict.fromkeys(MEASURED) | {"metric": self.model.metric, "error": reason}


def measure(baseline: Baseline, tool: str) -> dict[str, Any]:
    """Quantize with a tool and measure what comes out; a failure is a row as well."""
    feeds = baseline.model.calibration(baseline.effort.samples)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "quantized.onnx"
        begin = time.perf_counter()
        try:
            TOOLS[tool](baseline.path, feeds, target)
            seconds = time.perf_counter() - begin
            return baseline.row(tool, target) | {"quantize_seconds": round(seconds, 2)}
        except Exception as error:
            if tool.startswith("lucid_fx"):
                traceback.print_exc()
            return baseline.failure(tool, error)


def rows(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure everything that was asked for, one row at a time."""
    seconds = arguments.seconds or (0.6 if arguments.quick else 3.0)
    effort = Effort(arguments.samples, seconds, arguments.quick)
    for name in arguments.model or models.MODELS:
        try:
            baseline = Baseline(models.get(name), effort)
        except models.FetchError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        if arguments.quantized is not None:
            yield baseline.row("file", arguments.quantized)
            continue
        for tool in arguments.tool or DEFAULT_TOOLS:
            yield measure(baseline, tool)


def show(found: Iterable[dict[str, Any]]) -> None:
    """Print rows as a table, and the reasons of failures under it."""
    columns = ("model", "tool", "metric", "score_float", *MEASURED, "float_elementwise")
    table = Table()
    failures = []
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:3] else "right")
    for row in found:
        cells = [row.get(column) for column in columns]
        table.add_row(*(f"{c:.4f}" if isinstance(c, float) else str(c or 0) for c in cells))
        if "error" in row:
            failures.append(f"{row['model']}, {row['tool']}: {row['error']}")
        print(f"  {row['model']} {row['tool']}", file=sys.stderr)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)
    console.print(f"CPU: {describe_cpu()}", markup=False)
    for failure in failures:
        console.print(failure, markup=False)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", nargs="+", action="extend", choices=list(models.MODELS))
    parser.add_argument("--tool", nargs="+", action="extend", choices=list(TOOLS))
    parser.add_argument("--quantized", type=Path, help="measure this file of the one --model")
    parser.add_argument("--samples", type=int, default=64, help="calibration samples")
    parser.add_argument("--seconds", type=float, help="for each latency ratio")
    parser.add_argument("--quick", action="store_true", help="part of the data, short timing")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    parsed = parser.parse_args(arguments)
    if parsed.quantized is not None and len(parsed.model or ()) != 1:
        parser.error("--quantized needs exactly one --model")
    return parsed


def main() -> None:
    """Run the benchmark."""
    arguments = parse()
    found = rows(arguments)
    if not arguments.json:
        show(found)
        return
    for row in found:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
