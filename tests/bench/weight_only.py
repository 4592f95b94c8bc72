"""A decoder larger than 3 GB, its weights put on 4 bits by us and by onnxruntime's own quantizer.

    python tests/bench/weight_only.py [--layers 4] [--folder DIR] [--json]

The model is written here (random weights, external data) and removed afterwards. Each tool runs as
a process of its own, from the file to a file; peak memory is what the operating system tells of it,
mapped pages included. Then both results and the float model run on the same input.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from calibration import own_peak_mb
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

from lucid_fx.native.library import library_path

WIDTH, INNER, BLOCK = 4096, 11008, 32
TOOLS = ("lucid_fx", "onnxruntime")
ALIGNMENT = 4096


class Writer:
    """Collects nodes, and writes weights straight to the file of external data."""

    def __init__(self, folder: Path) -> None:
        self.data = (folder / "decoder.data").open("wb")
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Append a node and give its output."""
        name = output.replace(".", "/")
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))
        return output

    def weight(self, name: str, *shape: int) -> str:
        """A random weight, written a few rows at a time."""
        offset = -(-self.data.tell() // ALIGNMENT) * ALIGNMENT
        self.data.seek(offset)
        scale = np.float32(1 / np.sqrt(shape[0]))
        for first in range(0, shape[0], 256):
            rows = (min(256, shape[0] - first), *shape[1:])
            self.data.write((self.rng.standard_normal(rows, np.float32) * scale).tobytes())
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        length = self.data.tell() - offset
        for key, value in (("location", "decoder.data"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        return name

    def product(self, x: str, name: str, k: int, n: int) -> str:
        """X times a weight."""
        return self.node("MatMul", [x, self.weight(f"{name}.weight", k, n)], name)


def layer(w: Writer, x: str, name: str) -> str:
    """Attention of one head, and a gated product, both around a residual."""
    ones = f"{name}.norm"
    w.initializers.append(helper.make_tensor(ones, TensorProto.FLOAT, [WIDTH], [1.0] * WIDTH))
    normed = w.node("LayerNormalization", [x, ones], f"{name}.n1", axis=-1)
    q, k, v = (w.product(normed, f"{name}.{part}", WIDTH, WIDTH) for part in "qkv")
    scores = w.node("MatMul", [q, w.node("Transpose", [k], f"{name}.kt", perm=[0, 2, 1])],
                    f"{name}.scores")  # fmt: skip
    scores = w.node("Mul", [scores, "one_by_root"], f"{name}.scaled")
    mixed = w.node("MatMul", [w.node("Softmax", [scores], f"{name}.p", axis=-1), v], f"{name}.mix")
    x = w.node("Add", [x, w.product(mixed, f"{name}.o", WIDTH, WIDTH)], f"{name}.x1")
    normed = w.node("LayerNormalization", [x, ones], f"{name}.n2", axis=-1)
    gate = w.node("Sigmoid", [w.product(normed, f"{name}.gate", WIDTH, INNER)], f"{name}.sigmoid")
    up = w.node("Mul", [gate, w.product(normed, f"{name}.up", WIDTH, INNER)], f"{name}.gated")
    return w.node("Add", [x, w.product(up, f"{name}.down", INNER, WIDTH)], f"{name}.x2")


def write_decoder(folder: Path, layers: int) -> Path:
    """The model and its external data."""
    w = Writer(folder)
    root = [1 / float(np.sqrt(WIDTH))]
    w.initializers.append(helper.make_tensor("one_by_root", TensorProto.FLOAT, [], root))
    x = "x"
    for i in range(layers):
        x = layer(w, x, f"layer{i}")
    w.node("Identity", [x], "y")
    w.data.close()
    shape = ["batch", "time", WIDTH]
    graph = helper.make_graph(
        w.nodes,
        "decoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        w.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "decoder.onnx"
    onnx.save(model, path)
    return path


def quantize(tool: str, source: Path, target: Path) -> None:
    """One tool, as its documentation says."""
    if tool == "lucid_fx":
        import lucid_fx

        lucid_fx.quantize_weights(source, "int4", block_size=BLOCK).save(target)
        return
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        onnx.load(source), block_size=BLOCK, is_symmetric=True, accuracy_level=4
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(target), use_external_data_format=True)


def child(tool: str, source: Path, target: Path) -> None:
    """Quantize in this process and tell what it took."""
    start = time.perf_counter()
    quantize(tool, source, target)
    seconds = time.perf_counter() - start
    print(json.dumps({"tool": tool, "seconds": seconds, "peak_mb": own_peak_mb()}))


def run(path: Path, x: Any) -> tuple[Any, float]:
    """The output, and the least time of three runs."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.register_custom_ops_library(str(library_path()))
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    times = []
    for _ in range(3):
        start = time.perf_counter()
        (y,) = session.run(None, {"x": x})
        times.append(time.perf_counter() - start)
    return y, min(times)


def rows(source: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Both tools on the same file."""
    x = np.random.default_rng(1).standard_normal((1, 8, WIDTH)).astype(np.float32)
    truth, float_seconds = run(source, x)
    for tool in TOOLS:
        target = folder / f"{tool}.onnx"
        command = [sys.executable, __file__, "--child", tool, str(source), str(target)]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise SystemExit(f"{tool} failed: {told.stderr[-2000:]}")
        row = json.loads(told.stdout.splitlines()[-1])
        y, seconds = run(target, x)
        noise = float(np.mean((y - truth) ** 2) / np.mean(truth**2))
        files = sum(path.stat().st_size for path in folder.glob(f"{tool}.onnx*"))
        yield row | {
            "file_mb": files / 2**20,
            "run_ms": seconds * 1e3,
            "float_ms": float_seconds * 1e3,
            "sqnr_db": -10 * np.log10(noise),
        }
        for path in folder.glob(f"{tool}.onnx*"):
            path.unlink()


def main() -> None:
    """Write, quantize, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--folder", type=Path, help="where there is room for twice the model")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        tool, source, target = options.child
        child(tool, Path(source), Path(target))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        source = write_decoder(folder, options.layers)
        size = (folder / "decoder.data").stat().st_size
        bound = 3 * WIDTH * INNER * 4 / 2**20 + 300
        console = Console(file=sys.stderr if options.json else sys.stdout)
        console.print(
            f"{size / 1e9:.2f} GB; bound of the memory: 3 times the largest tensor plus 300 MB"
            f" = {bound:.0f} MB"
        )
        table = Table("tool", "s", "peak MB", "file MB", "run ms", "float ms", "SQNR dB")
        for row in rows(source, folder):
            if options.json:
                print(json.dumps(row), flush=True)
            numbers = ("seconds", "peak_mb", "file_mb", "run_ms", "float_ms", "sqnr_db")
            table.add_row(row["tool"], *(f"{row[number]:.1f}" for number in numbers))
        console.print(table)


if __name__ == "__main__":
    main()
