"""MatMulInt4 against onnxruntime's float32 MatMul and its MatMulNBits: speed, bandwidth, error.

    python tests/bench/int4_gemm.py [--quick] [--json] [--m M …] [--shape KxN …] [--block B …]

All of a row runs in this process, in turns, and times are medians. MatMulNBits runs at every
accuracy level, and its fastest counts. `bandwidth` is the time of reading the weights, nothing
more, over the time of multiplying by them. Errors are root mean squares against float64 on the
dequantized weights, over 512 rows of A in batches of M, relative to the result's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import mmap
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from _timing import alternating_times, describe_cpu
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from lucid_fx.native.library import NativeLibrary, load
from lucid_fx.native.matmul import PANEL, NativeMatMul

Floats = NDArray[np.float32]

ROWS = (1, 2, 4, 8, 16, 32, 128, 512)
SHAPES = ((768, 3072), (2048, 2048), (4096, 4096), (4096, 11008), (11008, 4096))
BEYOND_CACHE = (8192, 16384)
BLOCKS = (32, 128)
LEVELS = (0, 1, 2, 3, 4)
ERROR_ROWS = 512
BITS = 4


@dataclass(frozen=True)
class Weights:
    """Random 4-bit weights, one set of numbers for all competitors."""

    codes: NDArray[np.uint8]  # [K, N], zero point 8
    scales: NDArray[np.float16]  # [blocks, N]
    block: int

    @property
    def real(self) -> Floats:
        """What both quantized products multiply by."""
        scales = self.scales.astype(np.float32).repeat(self.block, axis=0)[: len(self.codes)]
        return (self.codes.astype(np.float32) - 8) * scales


def make_weights(k: int, n: int, block: int) -> Weights:
    """Codes and scales such that results are about 1."""
    rng = np.random.default_rng(k * n + block)
    scales = rng.uniform(0.5, 1.5, (-(-k // block), n)) / (4 * math.sqrt(k))
    codes = rng.integers(0, 16, (k, n), dtype=np.uint8)
    return Weights(codes, scales.astype(np.float16), block)


def one_node(
    op: str, domain: str, k: int, n: int, weights: Sequence[Any], **attributes: Any
) -> Any:
    """A model of one node, Y[M, N] = op(A[M, K], weights…)."""
    names = [f"w{i}" for i in range(len(weights))]
    node = helper.make_node(op, ["A", *names], ["Y"], domain=domain, name=op, **attributes)
    graph = helper.make_graph(
        [node],
        op,
        [helper.make_tensor_value_info("A", TensorProto.FLOAT, ["M", k])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ["M", n])],
        [numpy_helper.from_array(w, name) for w, name in zip(weights, names, strict=True)],
    )
    opsets = [helper.make_opsetid("", 17)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


class Shared:
    """Arrays in one stretch of memory, in pages as onnxruntime's allocator and mapped files get.

    A session may use them in place, and the bench may read the same bytes. (Copies would differ:
    numpy asks for huge pages, and memory that was used before lies scattered.)
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        ends = list(itertools.accumulate(-(-array.nbytes // 64) * 64 for array in arrays))
        self.bytes = np.frombuffer(mmap.mmap(-1, ends[-1]), np.uint8)
        starts = [0, *ends[:-1]]
        self.arrays = [
            self.bytes[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
            for start, array in zip(starts, arrays, strict=True)
        ]
        for mine, array in zip(self.arrays, arrays, strict=True):
            mine[:] = array
        self.values = [ort.OrtValue.ortvalue_from_numpy(array) for array in self.arrays]


def open_session(
    model: ModelProto, threads: int, library: NativeLibrary, weights: Sequence[Any] = ()
) -> Any:
    """A session with our ops. `weights` take the place of the model's w0, w1, …"""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    # threads that wait in a loop after a run would take the core from who runs next
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3
    options.register_custom_ops_library(str(library.path))
    for i, value in enumerate(weights):
        options.add_initializer(f"w{i}", value)
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def aligned(*shape: int) -> Floats:
    """Zeros on a boundary of 64 bytes, as onnxruntime allocates its tensors."""
    memory = np.zeros(math.prod(shape) * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + math.prod(shape) * 4].view(np.float32).reshape(shape)


def bound(session: Any, a: Floats, n: int) -> Callable[[], object]:
    """A run into memory that is there already, as a deployed model has it."""
    binding = session.io_binding()
    binding.bind_cpu_input("A", a)
    y = aligned(len(a), n)
    binding.bind_ortvalue_output("Y", ort.OrtValue.ortvalue_from_numpy(y))
    return lambda: session.run_with_iobinding(binding)


def panels(scales: NDArray[np.float16]) -> NDArray[np.float16]:
    """Scales [blocks, N] as the op takes them: [panels, blocks, 16]."""
    blocks, n = scales.shape
    wide = np.zeros((blocks, -(-n // PANEL) * PANEL), scales.dtype)
    wide[:, :n] = scales
    return np.ascontiguousarray(wide.reshape(blocks, -1, PANEL).swapaxes(0, 1))


def our_operands(weights: Weights, native: NativeMatMul) -> list[Any]:
    """Packed codes and scales."""
    return [native.pack(weights.codes, weights.block, BITS), panels(weights.scales)]


def nbits_operands(weights: Weights) -> list[Any]:
    """MatMulNBits: [N, blocks, bytes of a block], the first code in the low half of a byte."""
    k, n = weights.codes.shape
    padded = np.full((-(-k // weights.block) * weights.block, n), 8, np.uint8)
    padded[:k] = weights.codes
    pairs = padded.T.reshape(n, -1, weights.block // 2, 2)
    packed = pairs[..., 0] | pairs[..., 1] << 4
    return [packed, np.ascontiguousarray(weights.scales.T.astype(np.float32)).ravel()]


class Contest:
    """One shape and block: operands, the truth, and sessions for a number of threads."""

    def __init__(self, k: int, n: int, block: int) -> None:
        library = load()
        if library is None:
            raise SystemExit("the native library is not installed")
        self.k, self.n, self.block, self.library = k, n, block, library
        self.native = NativeMatMul(library)
        self.weights = make_weights(k, n, block)
        ours, theirs = our_operands(self.weights, self.native), nbits_operands(self.weights)
        shape = {"K": k, "N": n, "block_size": block}
        self.models = {
            "float": one_node("MatMul", "", k, n, [self.weights.real]),
            "ours": one_node("MatMulInt4", "lucid_fx", k, n, ours, value="Q4F", layout=1, **shape),
        }
        for level in LEVELS:
            self.models[f"nbits {level}"] = one_node(
                "MatMulNBits", "com.microsoft", k, n, theirs, bits=BITS, accuracy_level=level,
                **shape,
            )  # fmt: skip
        self.shared = Shared(ours)
        rng = np.random.default_rng(0)
        self.a = aligned(ERROR_ROWS, k)
        self.a[:] = rng.standard_normal((ERROR_ROWS, k))
        self.truth = self.a.astype(np.float64) @ self.weights.real.astype(np.float64)
        self.errors: dict[tuple[str, int], float] = {}
        self.threads, self.sessions = 0, dict[str, Any]()

    def open(self, threads: int) -> None:
        """Open the sessions."""
        self.threads = threads
        self.sessions = {
            name: open_session(
                model, threads, self.library, self.shared.values if name == "ours" else ()
            )
            for name, model in self.models.items()
        }

    def run(self, name: str, a: Floats) -> Floats:
        """The product of one competitor."""
        (y,) = self.sessions[name].run(None, {"A": a})
        return np.asarray(y)

    def error(self, name: str, m: int) -> float:
        """Relative root mean square error over all rows, m at a time."""
        if (name, m) not in self.errors:  # the number of threads changes nothing
            y = np.concatenate([self.run(name, self.a[i : i + m]) for i in range(0, ERROR_ROWS, m)])
            error = np.sqrt(np.mean((y - self.truth) ** 2) / np.mean(self.truth**2))
            self.errors[name, m] = float(error)
        return self.errors[name, m]

    def row(self, m: int, seconds: float) -> dict[str, Any]:
        """One row of the table."""
        a = self.a[:m]
        runs = {name: bound(session, a, self.n) for name, session in self.sessions.items()}
        if m == 1:
            runs["read"] = lambda: self.native.read(self.shared.bytes, self.threads)
        # one thread's own time leaves out what other processes take
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        times = alternating_times(runs, seconds=seconds, least_rounds=3, clock=clock)
        level = min(LEVELS, key=lambda level: times[f"nbits {level}"])
        return {
            "m": m, "k": self.k, "n": self.n, "block": self.block, "threads": self.threads,
            "ours_ms": times["ours"] * 1e3,
            "float_ms": times["float"] * 1e3,
            "nbits_ms": times[f"nbits {level}"] * 1e3,
            "nbits_level": level,
            "bandwidth_fraction": times["read"] / times["ours"] if m == 1 else None,
            "error": self.error("ours", m),
            "nbits_error": self.error("nbits 4", m),
        }  # fmt: skip


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows asked for."""
    for k, n in options.shape:
        for block in options.block:
            contest = Contest(k, n, block)
            for threads in options.threads:
                contest.open(threads)
                for m in options.m:
                    if m <= 4 or (k, n) != BEYOND_CACHE:  # that one is about memory
                        yield contest.row(m, options.seconds)


def wanted(row: dict[str, Any]) -> str:
    """What the row misses of what it should show; empty when nothing."""
    nbits, floats = row["nbits_ms"] / row["ours_ms"], row["float_ms"] / row["ours_ms"]
    least = 1.0 if row["m"] <= 4 else 1.4 if row["m"] <= 16 else 2.0
    misses = [f"nbits {least}"] if nbits < least else []
    if row["m"] >= 128 and floats < 2.8:
        misses.append("float 2.8")
    if row["m"] == 1 and row["bandwidth_fraction"] < 0.85 and beyond_cache(row):
        misses.append("bandwidth .85")
    if row["error"] > row["nbits_error"]:
        misses.append("error")
    return ", ".join(misses)


def beyond_cache(row: dict[str, Any]) -> bool:
    """Whether the weights are larger than the last-level cache."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    largest = max((int(path.read_text().strip().rstrip("K")) for path in sizes), default=0)
    bytes_of_weights = row["k"] * row["n"] * (BITS / 8 + 2 / row["block"])
    return bool(bytes_of_weights > largest * 1024)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--m", type=int, nargs="+")
    parser.add_argument("--shape", nargs="+", metavar="KxN")
    parser.add_argument("--block", type=int, nargs="+", default=BLOCKS)
    parser.add_argument("--threads", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, help="for each row")
    parser.add_argument("--quick", action="store_true", help="a part, in under 60 seconds")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args(arguments)
    quick = options.quick
    options.m = options.m or ((1, 8, 32, 128) if quick else ROWS)
    options.threads = options.threads or ((1,) if quick else (1, 2))
    options.seconds = options.seconds or (0.4 if quick else 1.0)
    if options.shape is None:
        options.shape = ((2048, 2048), (4096, 4096)) if quick else (*SHAPES, BEYOND_CACHE)
    else:
        options.shape = [tuple(map(int, text.split("x"))) for text in options.shape]
    return options


def main() -> None:
    """Measure and print."""
    options = parse()
    console = Console(file=sys.stderr if options.json else sys.stdout, width=140)
    console.print(describe_cpu())
    table = Table(
        "M", "K", "N", "block", "threads", "ours ms", "float ms", "NBits ms", "level", "vs float",
        "vs NBits", "bandwidth", "error", "NBits error", "misses",
    )  # fmt: skip
    for row in rows(options):
        if options.json:
            print(json.dumps(row), flush=True)
        table.add_row(
            *(str(row[name]) for name in ("m", "k", "n", "block", "threads")),
            *(f"{row[name]:.3f}" for name in ("ours_ms", "float_ms", "nbits_ms")),
            str(row["nbits_level"]),
            f"{row['float_ms'] / row['ours_ms']:.2f}",
            f"{row['nbits_ms'] / row['ours_ms']:.2f}",
            f"{row['bandwidth_fraction']:.2f}" if row["bandwidth_fraction"] else "",
            f"{row['error']:.2e}",
            f"{row['nbits_error']:.2e}",
            wanted(row),
        )
    console.print(table)


if __name__ == "__main__":
    main()
