"""Time and memory of `compare`, beside a plain run of the float and of the quantized model.

    python tests/bench/compare.py [--model NAME …] [--samples N] [--format qdq] [--json]

``ratio`` is the time of `compare`, preparation included, divided by that of one run of each model
over the same samples, in the same process. ``extra_mb`` is peak memory of a process that compares,
above that of one that runs both models.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _timing import paired_ratio
from calibration import load_feeds, own_peak_mb

MODELS = ("fmnist_dw", "ppocr_rec", "byte_lm")


def quantized_file(name: str, format: str) -> Path:
    """The model on codes, in a file of its own."""
    import lucid_fx

    model, feeds = load_feeds(name, 16)
    path = Path(tempfile.mkdtemp()) / f"{name}.onnx"
    lucid_fx.quantize(model.path(), feeds, format=format).save(path)  # type: ignore[arg-type]
    return path


def plain(path: Path, quantized: Path, feeds: list[Any]) -> Callable[[], None]:
    """A run of both models over the samples."""
    import lucid_fx

    sessions = [lucid_fx.trace(file, allow_quantized=True) for file in (path, quantized)]
    for module in sessions:
        module.session()

    def run() -> None:
        for module in sessions:
            for feed in feeds:
                module.session().run(feed)

    return run


def comparing(path: Path, quantized: Path, feeds: list[Any]) -> Callable[[], None]:
    """`compare` from files."""
    import lucid_fx

    return lambda: lucid_fx.compare(path, quantized, feeds) and None


def child(what: str, name: str, quantized: str, samples: int) -> None:
    """Run once in a fresh process and print its peak memory in MB."""
    model, feeds = load_feeds(name, samples)
    make = comparing if what == "compare" else plain
    make(Path(model.path()), Path(quantized), feeds)()
    print(own_peak_mb())


def peak_mb(what: str, name: str, quantized: Path, samples: int) -> float:
    """Peak memory of `child`."""
    command = [sys.executable, __file__, "--child", what, name, str(quantized), str(samples)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1])


def time_ratio(
    name: str,
    quantized: Path,
    samples: int,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median of the ratios of alternating passes; ``clock`` may count the CPU's time instead."""
    model, feeds = load_feeds(name, samples)
    base = plain(Path(model.path()), quantized, feeds)
    other = comparing(Path(model.path()), quantized, feeds)
    return paired_ratio(base, other, repeats, clock)


def measure(name: str, format: str, samples: int, repeats: int) -> dict[str, Any]:
    """Time and memory for one model."""
    quantized = quantized_file(name, format)
    extra = peak_mb("compare", name, quantized, samples) - peak_mb(
        "plain", name, quantized, samples
    )
    ratio = time_ratio(name, quantized, samples, repeats)
    cpu = time_ratio(name, quantized, samples, 1, time.process_time)
    row = {"model": name, "format": format, "samples": samples}
    return row | {
        "ratio": round(ratio, 2), "cpu_ratio": round(cpu, 2), "extra_mb": round(extra, 1)
    }  # fmt: skip


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="*", default=MODELS)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--format", default="qoperator")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        what, name, quantized, samples = options.child
        child(what, name, quantized, int(samples))
        return
    for name in options.model:
        row = measure(name, options.format, options.samples, options.repeats)
        print(json.dumps(row) if options.json else row, flush=True)


if __name__ == "__main__":
    main()
