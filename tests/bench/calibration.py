"""Time and memory of calibration, beside a plain float session and onnxruntime's calibrators.

    python tests/bench/calibration.py [--model NAME …] [--samples N …] [--json]

``ratio`` is the time over the data divided by that of a plain float session, which runs in turn in
the same process. ``extra_mb`` is peak memory of a process that calibrates, above that of one that
only runs the float model over the same data.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _timing import paired_ratio

OBSERVERS = ("minmax", "moving_average", "histogram")
TOOLS = [("lucid_fx", observer) for observer in OBSERVERS]
TOOLS += [("onnxruntime", "MinMax"), ("onnxruntime", "Percentile")]
MODELS = ("fmnist_dw", "ppocr_rec", "byte_lm")


def plain(model: Any, feeds: list[Any]) -> Callable[[], None]:
    """A pass over the data with a plain session."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model.path()), options)

    def run() -> None:
        for feed in feeds:
            session.run(None, feed)

    return run


def ours(model: Any, feeds: list[Any], observer: str) -> Callable[[], None]:
    """A pass over the data through a prepared model."""
    import lucid_fx
    import lucid_fx.quantization as q

    chosen = {
        "minmax": q.MinMaxObserver.with_args(),
        "moving_average": q.MovingAverageMinMaxObserver.with_args(),
        "histogram": q.HistogramObserver.with_args(),
    }[observer]
    qconfig = q.QConfig(chosen, q.PerChannelMinMaxObserver.with_args())
    prepared = lucid_fx.prepare_fx(model.path(), qconfig, feeds[0])
    lucid_fx.calibrate(prepared, feeds[:1])  # opens the session that it will use, and no other

    def run() -> None:
        lucid_fx.calibrate(prepared, feeds)

    return run


def stock(model: Any, feeds: list[Any], method: str) -> Callable[[], None]:
    """A pass over the data with one of onnxruntime's calibrators."""
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import CalibrationDataReader, create_calibrator

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.items = iter(feeds)

        def get_next(self) -> Any:
            return next(self.items, None)

    folder = Path(tempfile.mkdtemp())
    method_value = getattr(CalibrationMethod, method)
    calibrator = create_calibrator(
        str(model.path()), None, str(folder / "augmented.onnx"), calibrate_method=method_value
    )

    def run() -> None:
        calibrator.collect_data(Reader())
        calibrator.compute_data()

    return run


def make(tool: str, observer: str, model: Any, feeds: list[Any]) -> Callable[[], None]:
    """The pass of a tool."""
    if tool == "plain":
        return plain(model, feeds)
    return ours(model, feeds, observer) if tool == "lucid_fx" else stock(model, feeds, observer)


def load_feeds(name: str, samples: int) -> tuple[Any, list[Any]]:
    """A model and its calibration samples, repeated where there are fewer."""
    import lucid_fx.models as zoo

    model = zoo.get(name)
    found = [dict(feed) for feed in model.calibration(samples)]
    return model, (found * -(-samples // len(found)))[:samples]


def child(tool: str, observer: str, name: str, samples: int) -> None:
    """Run once in a fresh process and print its peak memory in MB."""
    model, feeds = load_feeds(name, samples)
    make(tool, observer, model, feeds)()
    print(own_peak_mb())


def own_peak_mb() -> float:
    """Peak memory of this process.

    On Linux from VmHWM: ru_maxrss also holds what the parent had when it forked.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return float(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def peak_mb(tool: str, observer: str, name: str, samples: int) -> float:
    """Peak memory of `child`."""
    command = [sys.executable, __file__, "--child", tool, observer, name, str(samples)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1])


def time_ratio(tool: str, observer: str, name: str, samples: int, repeats: int) -> float:
    """Median of the ratios of alternating passes."""
    model, feeds = load_feeds(name, samples)
    return paired_ratio(plain(model, feeds), make(tool, observer, model, feeds), repeats)


def main() -> None:
    """Print a row for each model, tool, observer and number of samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="*", default=MODELS)
    parser.add_argument("--samples", nargs="*", type=int, default=[16, 256])
    parser.add_argument("--tool", nargs="*", default=["lucid_fx", "onnxruntime"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        tool, observer, name, samples = options.child
        child(tool, observer, name, int(samples))
        return
    if not options.json:
        print(f"{'model':12s} {'tool':12s} {'observer':16s} {'samples':>7s} {'ratio':>7s} extra MB")
    for name in options.model:
        for samples in options.samples:
            base = peak_mb("plain", "-", name, samples)
            for tool, observer in TOOLS:
                if tool not in options.tool:
                    continue
                row: dict[str, Any] = {
                    "model": name, "tool": tool, "observer": observer, "samples": samples,
                    "ratio": None, "extra_mb": None,
                }  # fmt: skip
                try:
                    row["ratio"] = round(
                        time_ratio(tool, observer, name, samples, options.repeats), 3
                    )
                    row["extra_mb"] = round(peak_mb(tool, observer, name, samples) - base, 1)
                except Exception as error:
                    row["error"] = str(error).splitlines()[0][:120]
                if options.json:
                    print(json.dumps(row), flush=True)
                else:
                    print(
                        f"{name:12s} {tool:12s} {observer:16s} {samples:7d} {row['ratio']!s:>7s}"
                        f" {row['extra_mb']} {row.get('error', '')}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
