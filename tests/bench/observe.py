"""Nanoseconds per element of every observer kind, on every instruction set of this machine.

python tests/bench/observe.py
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from lucid_fx.native.library import load
from lucid_fx.native.observers import NativeObservers

KEY = "bench/observe"
CASES: dict[str, tuple[str, str, tuple[int, ...]]] = {  # title: kind, data, shape behind the batch
    "minmax": ("minmax", "gauss", ()),
    "histogram gauss": ("histogram", "gauss", ()),
    "histogram relu": ("histogram", "relu", ()),
    "histogram softmax": ("histogram", "softmax", ()),
    "per_channel n x 49": ("per_channel", "gauss", (49,)),
    "per_channel n x 784": ("per_channel", "gauss", (784,)),
    "per_channel n x 64, last": ("per_channel", "gauss", (64,)),
}


def best_time(observers: NativeObservers, x: NDArray[np.float32], **options: Any) -> float:
    """Seconds of the fastest of many updates."""
    observers.reset(KEY)
    repeats = 40 if x.size > 100_000 else 400
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        observers.update(KEY, x, **options)
        best = min(best, time.perf_counter() - start)
    return float(best)


def measure(observers: NativeObservers, title: str, n: int, isa: str) -> float:
    """Nanoseconds per element, without the call from Python."""
    kind, name, inner = CASES[title]
    gauss = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    x = {"gauss": gauss, "relu": np.maximum(gauss, 0), "softmax": np.exp(8 * gauss)}[name]
    if inner:
        x = x[: n // inner[0] * inner[0]].reshape(-1, *inner)
    options = {"kind": kind, "isa": isa, "ch_axis": 1 if "last" in title else 0}
    call = best_time(observers, x.ravel()[:1], kind="minmax", isa=isa)
    return (best_time(observers, x, **options) - call) / x.size * 1e9


def main() -> None:
    """Print the table."""
    library = load()
    if library is None:
        raise SystemExit("the native library is not installed")
    observers = NativeObservers(library)
    table = Table("ns per element", "elements", *library.isas())
    for title in CASES:
        for n in (10_000, 1_000_000):
            cells = [f"{measure(observers, title, n, isa):.3f}" for isa in library.isas()]
            table.add_row(title, f"{n:,}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
