"""The main job on a model that ships with the package: `lucid-fx demo`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucid_fx.graph_module import GraphModule
from lucid_fx.models import Feed, RealModel, get
from lucid_fx.runtime.session import Session
from lucid_fx.tracing import trace
from lucid_fx.workflow import Progress, calibrate, convert_fx, fuse, prepare_fx

DEMO_MODEL = "fmnist_dw"
CALIBRATION_SAMPLES = 128
_SECONDS = 1.5
_RUNS_IN_A_BLOCK = 20


@dataclass(frozen=True)
class DemoResult:
    """What the demo measured.

    Attributes:
        module: the int8 model.
        accuracy_float, accuracy: on the labelled images.
        images: number of labelled images.
        bytes_float, bytes: sizes of the files.
        latency_ratio: time of the int8 model over that of the float model, one thread.
    """

    module: GraphModule
    accuracy_float: float
    accuracy: float
    images: int
    bytes_float: int
    bytes: int
    latency_ratio: float


def run_demo(
    out: Path,
    tell: Callable[[str], None],
    progress: Progress | None = None,
    *,
    seconds: float = _SECONDS,
) -> DemoResult:
    """Quantize the shipped classifier, compare it with the float model and write it.

    Args:
        out: where the int8 model goes.
        tell: takes a line of text for each step.
        progress: called after each calibration sample.
        seconds: how long to measure the latency.
    """
    model = get(DEMO_MODEL)
    traced = trace(model.path())
    tell(f"trace      {model.path().name}: {len(traced.ledger)} nodes")
    fused = fuse(traced)
    tell(f"fuse       {_count(fused)} nodes left")
    samples = model.calibration(CALIBRATION_SAMPLES)
    prepared = prepare_fx(fused, example_inputs=samples[0])
    tell(f"prepare    {len(prepared.observers)} observers, target {prepared.target.name}")
    begin = time.perf_counter()
    calibrate(prepared, samples, progress=progress)
    tell(f"calibrate  {len(samples)} images in {time.perf_counter() - begin:.2f} s")
    module = convert_fx(prepared)
    tell(f"convert    {_count(module)} nodes")
    module.save(out)
    return _compare(model, traced, module, out, seconds)


def _count(module: GraphModule) -> int:
    return sum(1 for _ in module.model.graph)


def _compare(
    model: RealModel, traced: GraphModule, module: GraphModule, out: Path, seconds: float
) -> DemoResult:
    runs = [Session(traced.model, threads=1).run, Session(module.model, threads=1).run]
    scores = [model.score(run)[model.metric] for run in runs]
    labels = model.evaluation().labels
    return DemoResult(
        module,
        scores[0],
        scores[1],
        sum(len(batch) for batch in labels),
        model.path().stat().st_size,
        out.stat().st_size,
        latency_ratio(runs[1], runs[0], model.latency_feeds(), seconds),
    )


def latency_ratio(
    run: Callable[[Feed], Any], base: Callable[[Feed], Any], feeds: list[Feed], seconds: float
) -> float:
    """The median of time(run) / time(base) over alternating blocks of runs in this process."""
    for warm_up in (run, base):
        _time(warm_up, feeds)
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while len(ratios) < 5 or time.perf_counter() < end:
        ratios.append(_time(run, feeds) / _time(base, feeds))
    return statistics.median(ratios)


def _time(run: Callable[[Feed], Any], feeds: list[Feed]) -> float:
    begin = time.perf_counter()
    for _ in range(_RUNS_IN_A_BLOCK):
        for feed in feeds:
            run(feed)
    return time.perf_counter() - begin


def demo_text(result: DemoResult) -> str:
    """The comparison as a small table."""
    size_float, size = result.bytes_float / 1000, result.bytes / 1000
    return "\n".join(
        (
            f"{'':24s}{'float':>10s}{'int8':>10s}",
            f"{f'accuracy, {result.images:,} images':24s}"
            f"{result.accuracy_float:10.4f}{result.accuracy:10.4f}",
            f"{'size':24s}{size_float:7.0f} kB{size:7.0f} kB",
            f"{'latency, 1 thread':24s}{1:10.2f}{result.latency_ratio:10.2f}",
        )
    )
