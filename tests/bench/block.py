"""Block-scaled quantization: the native library beside numpy, and peak memory.

    python tests/bench/block.py [--size N] [--seconds S] [--json] [--no-memory]

Both engines run in turn in one process; ``times`` is the median, over pairs of runs, of numpy's
time divided by the library's. ``extra`` is how much the peak resident memory of a process grows
when it quantizes a memory-mapped file of 2 GB to int4; pages of the file that are mapped count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _timing import describe_cpu
from calibration import own_peak_mb
from rich.console import Console
from rich.table import Table

import lucid_fx.quantization.block as b
from lucid_fx.native.library import load
from lucid_fx.quantization.block import engines
from lucid_fx.quantization.block.tiles import TILE_ELEMENTS

VALUES, BLOCKS = ("Q8S", "Q4F", "E2M1"), (32, 128)
FILE_SHAPE = (8192, 65536)  # 2 GiB of float32
LEAST_PAIRS = 5


def scheme_of(value: str, block: int) -> b.QuantScheme:
    """Integers in words, E2M1 in pairs, float16 scales."""
    pairs = value == "E2M1"
    store = b.QuantStore.PackedNative(0) if pairs else b.QuantStore.PackedU32(0)
    return b.QuantScheme(b.QuantValue(value), store).per_block([block], b.ScaleDtype.F16)


def operations(x: Any, scheme: b.QuantScheme) -> dict[str, Callable[[], object]]:
    """What is measured: the public functions, quantize with its range search.

    Results go to memory that is there already, so that the kernel's zeroing of pages is not what is
    compared.
    """
    tensor = b.quantize(x, scheme)
    codes, real, data = tensor.codes(), np.empty_like(x), np.empty_like(tensor.data)
    value, store, again = scheme.value, scheme.store, np.empty_like(codes)
    return {
        "quantize": lambda: b.quantize(x, scheme, out=data),
        "dequantize": lambda: b.dequantize(tensor, out=real),
        "pack": lambda: b.pack(codes, value, store, out=data),
        "unpack": lambda: b.unpack(tensor.data, tensor.shape, value, store, out=again),
    }


def seconds_of(run: Callable[[], object], *, native: bool) -> float:
    """Time of one run with one of the engines."""
    threshold = engines.NATIVE_ELEMENTS
    engines.NATIVE_ELEMENTS = 0 if native else sys.maxsize
    try:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin
    finally:
        engines.NATIVE_ELEMENTS = threshold


def compare(run: Callable[[], object], seconds: float) -> tuple[float, float, float]:
    """Median milliseconds of the library and of numpy, and the median of their ratios."""
    for native in (True, False):
        seconds_of(run, native=native)
    pairs: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(pairs) < LEAST_PAIRS or time.perf_counter() < end:
        first = len(pairs) % 2 == 0
        once = {native: seconds_of(run, native=native) for native in (first, not first)}
        pairs.append((once[True], once[False]))
    mine, theirs = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
    return mine, theirs, statistics.median(numpy / native for native, numpy in pairs)


def write_file(path: Path) -> None:
    """2 GiB of float32: one random tile again and again."""
    rows = 64
    tile = np.random.default_rng(0).standard_normal((rows, FILE_SHAPE[1])).astype(np.float32)
    with path.open("wb") as file:
        for _ in range(FILE_SHAPE[0] // rows):
            file.write(tile.data)


def quantize_file(path: str) -> None:
    """In a process of its own: quantize a mapped file, print megabytes as JSON."""
    scheme = scheme_of("Q4F", 32)
    b.quantize(np.ones((64, 4096), np.float32), scheme)  # code and threads are there already
    before = own_peak_mb()
    x = np.memmap(path, np.float32, "r", shape=FILE_SHAPE)
    tensor = b.quantize(x, scheme)
    extra = own_peak_mb() - before
    result = (tensor.data.nbytes + tensor.qparams.scales.nbytes) / 2**20
    print(json.dumps({"file": x.nbytes / 2**20, "extra": extra, "result": result}))


def memory() -> dict[str, float]:
    """Megabytes: the file, the growth of the peak, the result, a tile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights"
        write_file(path)
        command = [sys.executable, __file__, "--quantize-file", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return json.loads(done.stdout) | {"tile": TILE_ELEMENTS * 4 / 2**20}


def measure(size: int, seconds: float) -> list[dict[str, Any]]:
    """One row for each value, block and operation."""
    x = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    rows = []
    for value in VALUES:
        for block in BLOCKS:
            for name, run in operations(x, scheme_of(value, block)).items():
                mine, theirs, ratio = compare(run, seconds)
                row = {"operation": name, "value": value, "block": block}
                rows.append(row | {"native_ms": mine, "numpy_ms": theirs, "times": ratio})
    return rows


def show(result: dict[str, Any]) -> None:
    """Print both tables."""
    size = result["size"]
    table = Table("operation", "value", "block", "library, ms", "numpy, ms", "times as fast")
    table.title = f"{size} x {size} float32, {result['cores']} cores, {result['cpu']}"
    for row in result["rows"]:
        times = [f"{row['native_ms']:.1f}", f"{row['numpy_ms']:.1f}", f"{row['times']:.1f}"]
        table.add_row(row["operation"], row["value"], str(row["block"]), *times)
    Console().print(table)
    if found := result.get("memory"):
        least = found["result"] + found["tile"]
        print(
            f"int4 of a mapped file of {found['file']:.0f} MiB: {found['extra']:.0f} MiB extra,"
            f" of which the result and one tile are {least:.0f} MiB"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--quantize-file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quantize_file:
        quantize_file(options.quantize_file)
        return
    if load() is None:
        raise SystemExit("the native library is not installed")
    affinity = getattr(os, "sched_getaffinity", None)
    result = {
        "cpu": describe_cpu(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "size": options.size,
        "rows": measure(options.size, options.seconds),
    }
    if not options.no_memory:
        result["memory"] = memory()
    print(json.dumps(result, indent=1)) if options.json else show(result)


if __name__ == "__main__":
    main()
