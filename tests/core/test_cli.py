"""The command line: every exit status, every error in one line, and nothing written on failure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lucid_fx
from lucid_fx import cli, models
from lucid_fx.native.library import load
from lucid_fx.prepared import PreparedModule
from lucid_fx.tracing import trace

FASHION = models.get("fmnist_dw")
GRU = "y, h = GRU <hidden_size = 4> (x, w, r)"
CONV = "y = Conv (x, w)"


@dataclass(frozen=True)
class Printed:
    """What a command left behind."""

    status: int
    out: str
    err: str


Run = Callable[..., Printed]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> Printed:
        status = cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Printed(status, printed.out, printed.err)

    return call


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.npz"
    np.savez(path, image=np.concatenate([f["image"] for f in FASHION.calibration(8)]))
    return path


def write_model(folder: Path, body: str, shape: str, **weights: tuple[int, ...]) -> Path:
    """A tiny model of one line of ONNX text, with seeded weights."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        f"g (float[{shape}] x) => (float[] y) {{ {body} }}"
    )
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    random = np.random.default_rng(0)
    for name, dims in weights.items():
        array = random.normal(size=dims).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path = folder / "tiny.onnx"
    onnx.save(model, path)
    return path


def write_data(folder: Path, *shape: int) -> Path:
    path = folder / "tiny.npz"
    np.savez(path, **{f"{i}/x": np.full(shape, i + 1, np.float32) for i in range(3)})
    return path


def one_line(printed: Printed) -> str:
    assert printed.err.count("\n") == 1, printed.err
    assert not printed.out
    return printed.err


class TestQuantize:
    @pytest.mark.parametrize("format", ["qoperator", "qdq"])
    def test_it_writes_a_model_and_tells_what_it_did(
        self, run: Run, data: Path, tmp_path: Path, format: str
    ) -> None:
        out, ledger = tmp_path / "out.onnx", tmp_path / "ledger.json"
        printed = run(
            "quantize", FASHION.path(), "--calib", data, "-o", out, "--format", format,
            "--ledger", ledger, "--strict",
        )  # fmt: skip
        assert printed.status == 0, printed.err
        assert not printed.err
        for text in (f"format {format}", "samples    8", f"{out.stat().st_size:,} bytes",
                     " quantized\n", f"written    {out}, {ledger}"):  # fmt: skip
            assert text in printed.out
        assert out.stat().st_size < FASHION.path().stat().st_size / 2
        assert len(json.loads(ledger.read_text())["entries"]) == 43
        module = trace(out, allow_quantized=True)
        scores = FASHION.score(lambda feed: list(module.run(feed).values()), limit=200)
        assert scores["accuracy"] > 0.8

    def test_both_forms_of_data_give_the_same_model(
        self, run: Run, data: Path, tmp_path: Path
    ) -> None:
        named = tmp_path / "named.npz"
        np.savez(named, **{f"{i}/image": f["image"] for i, f in enumerate(FASHION.calibration(8))})
        outs = [tmp_path / "a.onnx", tmp_path / "b.onnx"]
        for source, out in zip((data, named), outs, strict=True):
            assert run("quantize", FASHION.path(), "--calib", source, "-o", out).status == 0
        assert outs[0].read_bytes() == outs[1].read_bytes()

    def test_exclusions_and_recipe(self, run: Run, data: Path, tmp_path: Path) -> None:
        out, recipe = tmp_path / "out.onnx", tmp_path / "recipe.toml"
        recipe.write_text(
            'format = "qdq"\nobserver = "minmax"\nexclude = ["conv0"]\n'
            '[modules.proj1.weight]\nobserver = "minmax"\n'
        )
        printed = run(
            "quantize", FASHION.path(), "--calib", data, "-o", out, "--recipe", recipe,
            "--exclude-op", "Gemm", "--observer", "moving-average", "--strict",
        )  # fmt: skip
        assert printed.status == 0, printed.err
        assert "format qdq" in printed.out
        assert "observer moving-average" in printed.out
        ledger = trace(out, allow_quantized=True).ledger
        assert ledger["conv0"].status == ledger["fc"].status == "float"
        assert ledger["proj1"].status == "quantized"

    def test_the_input_file_may_be_replaced(self, run: Run, data: Path, tmp_path: Path) -> None:
        model = tmp_path / "m.onnx"
        model.write_bytes(FASHION.path().read_bytes())
        assert run("quantize", model, "--calib", data, "-o", model).status == 0
        assert run("quantize", model, "--calib", data, "-o", tmp_path / "n.onnx").status == 2

    def test_not_finite_values_are_a_warning(self, run: Run, tmp_path: Path) -> None:
        model = write_model(tmp_path, CONV, "N,2,5,5", w=(4, 2, 3, 3))
        array = np.ones((2, 2, 5, 5), np.float32)
        array[1, 0, 0, 0] = np.nan
        np.savez(tmp_path / "tiny.npz", x=array)
        printed = run(
            "quantize", model, "--calib", tmp_path / "tiny.npz", "-o", tmp_path / "o.onnx"
        )
        assert printed.status == 0
        assert printed.err.startswith("warning: tensor 'x': 1 NaN and 0 infinite values")

    def test_a_bar_shows_where_somebody_watches(
        self, run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        printed = run("quantize", FASHION.path(), "--calib", data, "-o", tmp_path / "o.onnx")
        assert printed.status == 0
        assert "calibrating" in printed.err


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "model missing": ({"MODEL": "none.onnx"}, "there is no file 'none.onnx'"),
    "not ONNX": ({"MODEL": "text.txt"}, "'text.txt' is not an ONNX model"),
    "data missing": ({"--calib": "none.npz"}, "'none.npz': there is no such file"),
    "data not npz": ({"--calib": "text.txt"}, "'text.txt': it is not an .npz file"),
    "no samples": ({"--calib": {}}, "there are no samples in it"),
    "unknown input": (
        {"--calib": {"0/imag": np.zeros((1, 1, 28, 28), np.float32)}},
        "array '0/imag' names no input of the model; did you mean 'image'?",
    ),
    "rank": ({"--calib": {"0/image": np.zeros((28, 28), np.float32)}}, "(rank 2) does not fit"),
    "dtype": ({"--calib": {"image": np.zeros((2, 1, 28, 28))}}, "has dtype float64, input 'image'"),
    "excluded name": ({"--exclude": "convO"}, "'convO'; did you mean 'conv0'"),
    "excluded type": ({"--exclude-op": "Cnov"}, "type 'Cnov'; did you mean 'Conv'?"),
    "folder of OUT": ({"-o": "none/out.onnx"}, "--out: there is no folder 'none'"),
    "OUT is a folder": ({"-o": "."}, "--out: '.' is a folder, not a file"),
    "OUT is the data": ({"-o": "data.npz"}, "--out: 'data.npz' would overwrite 'data.npz'"),
    "ledger is OUT": ({"--ledger": "out.onnx"}, "'out.onnx' would overwrite 'out.onnx'"),
    "folder of ledger": ({"--ledger": "none/l.json"}, "--ledger: there is no folder 'none'"),
    "format": ({"--format": "qoperators"}, "Invalid value for '--format'"),
    "observer": ({"--observer": "percentile"}, "Invalid value for '--observer'"),
    "target": ({"--target": "gpu"}, "there is no target 'gpu'; known are auto, cpu-"),
    "recipe missing": ({"--recipe": "none.json"}, "there is no recipe file 'none.json'"),
    "recipe key": ({"--recipe": "recipe.json"}, "no key 'observr'; did you mean 'observer'?"),
    "option": ({"--exlude": "conv0"}, "No such option: --exlude"),
    "no data": ({"--calib": None}, "Missing option '--calib'"),
    "quantized already": ({"MODEL": "int8.onnx"}, "--allow-quantized"),
}


@pytest.fixture
def folder(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with everything that the wrong command lines name."""
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(FASHION.path().read_bytes())
    Path("text.txt").write_text("hello\n")
    Path("recipe.json").write_text('{"observr": "minmax"}')
    Path("out.onnx").write_bytes(b"old model")
    Path("ledger.json").write_bytes(b"old ledger")
    return tmp_path


@pytest.mark.parametrize(("change", "text"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_line_and_status_2(
    run: Run, folder: Path, change: dict[str, Any], text: str
) -> None:
    if change.get("MODEL") == "int8.onnx":
        assert run("quantize", "m.onnx", "--calib", "data.npz", "-o", "int8.onnx").status == 0
    given = {"MODEL": "m.onnx", "--calib": "data.npz", "-o": "out.onnx", "--ledger": "ledger.json"}
    given |= change
    if isinstance(given["--calib"], dict):
        np.savez("made.npz", **given["--calib"])
        given["--calib"] = "made.npz"
    before = {path: path.read_bytes() for path in folder.iterdir()}
    model = given.pop("MODEL")
    options = [word for pair in given.items() if pair[1] is not None for word in pair]
    printed = run("quantize", model, *options)
    assert printed.status == 2
    line = one_line(printed)
    assert line.startswith("error: ")
    assert text in line
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


class TestFailure:
    def quantize(self, run: Run, *more: object) -> Printed:
        return run(
            *("quantize", "m.onnx", "--calib", "data.npz", "-o", "out.onnx"),
            *("--ledger", "ledger.json", *more),
        )

    def assert_untouched(self, folder: Path) -> None:
        assert (folder / "out.onnx").read_bytes() == b"old model"
        assert (folder / "ledger.json").read_bytes() == b"old ledger"
        assert not [path for path in folder.iterdir() if path.name.startswith(".")]

    def test_interrupt(self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(PreparedModule, "keep", stop)
        printed = self.quantize(run)
        assert printed.status == 130
        assert one_line(printed) == "interrupted: nothing was written\n"
        self.assert_untouched(folder)

    def test_a_defect_of_ours(
        self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError("by\nzero")

        monkeypatch.setattr("lucid_fx.quantize_file.convert_fx", fail)
        printed = self.quantize(run)
        assert printed.status == 1
        line = one_line(printed)
        assert line.startswith("internal error: ZeroDivisionError: by zero, please report it")
        printed = self.quantize(run, "--debug")
        assert printed.status == 1
        assert "Traceback" in printed.err
        self.assert_untouched(folder)

    def test_a_full_disk(self, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device", "out.onnx")

        monkeypatch.setattr("onnx_ir.save", full)
        printed = self.quantize(run)
        assert printed.status == 2
        assert one_line(printed) == "error: No space left on device: 'out.onnx'\n"
        self.assert_untouched(folder)


class TestStrict:
    @pytest.fixture
    def recurrent(self, tmp_path: Path) -> list[object]:
        model = write_model(tmp_path, GRU, "S,1,3", w=(1, 12, 3), r=(1, 12, 4))
        return ["quantize", model, "--calib", write_data(tmp_path, 5, 1, 3)]

    def test_what_is_left_in_float_is_status_3(
        self, run: Run, recurrent: list[object], tmp_path: Path
    ) -> None:
        out, ledger = tmp_path / "out.onnx", tmp_path / "l.json"
        printed = run(*recurrent, "-o", out, "--strict", "--ledger", ledger)
        assert printed.status == 3
        line = one_line(printed)
        assert line.startswith("error: --strict: 1 node was not quantized, nothing is written: GRU")
        assert "onnxruntime has no integer GRU" in line
        assert not out.exists()
        assert not ledger.exists()

    def test_without_strict_it_is_told_in_the_summary(
        self, run: Run, recurrent: list[object], tmp_path: Path
    ) -> None:
        printed = run(*recurrent, "-o", tmp_path / "out.onnx")
        assert printed.status == 0
        assert "GRU: onnxruntime has no integer GRU" in printed.out

    def test_what_the_user_excluded_does_not_count(
        self, run: Run, recurrent: list[object], tmp_path: Path
    ) -> None:
        out = tmp_path / "out.onnx"
        assert run(*recurrent, "-o", out, "--strict", "--exclude-op", "GRU").status == 0
        assert out.exists()

    def test_products_of_computed_operands_do_not_count(self, run: Run, tmp_path: Path) -> None:
        body = "t = MatMul (x, w) u = Softmax (t) v = Transpose (t) y = MatMul (u, v)"
        model = write_model(tmp_path, body, "4,4", w=(4, 4))
        data = write_data(tmp_path, 4, 4)
        out = tmp_path / "out.onnx"
        assert run("quantize", model, "--calib", data, "-o", out, "--strict").status == 0
        by_type = {(e.op_type, e.status) for e in trace(out, allow_quantized=True).ledger}
        assert {("MatMul", "quantized"), ("MatMul", "float")} <= by_type


def test_allow_quantized_keeps_quantized_nodes(run: Run, folder: Path) -> None:
    body = (
        "s = Constant <value_float = 0.1> () z = Constant <value = uint8 {3}> ()"
        " q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) y = Conv (d, w)"
    )
    model = write_model(folder, body, "N,2,5,5", w=(4, 2, 3, 3))
    command = ["quantize", model, "--calib", write_data(folder, 1, 2, 5, 5), "-o", "kept.onnx"]
    assert run(*command).status == 2
    printed = run(*command, "--allow-quantized")
    assert printed.status == 0, printed.err
    assert any(node.op_type == "QuantizeLinear" for node in onnx.load("kept.onnx").graph.node)


class TestInspect:
    def test_a_float_model(self, run: Run) -> None:
        printed = run("inspect", FASHION.path())
        assert printed.status == 0
        for text in ("image  float  [batch, 1, 28, 28]", "ai.onnx 17", "nodes: 43", "14  Conv",
                     "grids: none", "ledger: none"):  # fmt: skip
            assert text in printed.out

    @pytest.mark.parametrize("format", ["qoperator", "qdq"])
    def test_a_quantized_model(self, run: Run, folder: Path, format: str) -> None:
        run("quantize", "m.onnx", "--calib", "data.npz", "-o", "out.onnx", "--format", format)
        printed = run("inspect", "out.onnx")
        assert printed.status == 0
        for text in ("int8", "zero point", "channels)", "ledger: ", " quantized",
                     "conv0", "computes on codes", "… and 3 more (--json shows all)"):  # fmt: skip
            assert text in printed.out
        report = json.loads(run("inspect", "out.onnx", "--json").out)
        assert report["nodes"] == sum(report["ops"].values())
        assert len(report["ledger"]["entries"]) == 43
        grids = {grid["tensor"]: grid for grid in report["grids"]}
        assert grids["image"]["dtype"] == "uint8"
        assert len(grids["image"]["scale"]) == len(grids["image"]["zero_point"]) == 1
        assert max(len(grid["scale"]) for grid in report["grids"]) >= 192
        assert sum(w["bytes"] for w in report["weights"]) < report["bytes"]

    def test_grids_that_are_computed_at_run_time(self, run: Run, folder: Path) -> None:
        body = "q, s, z = DynamicQuantizeLinear (x) y = DequantizeLinear (q, s, z)"
        printed = run("inspect", write_model(folder, body, "N"))
        assert printed.status == 0
        assert "computed" in printed.out

    def test_a_grid_that_is_not_finite_is_still_json(self, run: Run, folder: Path) -> None:
        body = "q = QuantizeLinear (x, s) y = DequantizeLinear (q, s)"
        path = write_model(folder, body, "N", s=())
        model = onnx.load(path)
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(np.inf), "s"))
        onnx.save(model, path)
        report = json.loads(run("inspect", path, "--json").out, parse_constant=pytest.fail)
        assert [grid["scale"] for grid in report["grids"]] == [["inf"]]

    def test_a_damaged_ledger_is_a_note(self, run: Run, folder: Path) -> None:
        model = onnx.load("m.onnx")
        model.metadata_props.add(key="lucid_fx.ledger", value="{")
        onnx.save(model, "m.onnx")
        assert "the stored ledger cannot be read" in run("inspect", "m.onnx").out

    @pytest.mark.parametrize("name", ["none.onnx", "text.txt"])
    def test_what_is_no_model(self, run: Run, folder: Path, name: str) -> None:
        printed = run("inspect", name)
        assert printed.status == 2
        assert name in one_line(printed)


class TestTheRest:
    def test_models_list(self, run: Run) -> None:
        printed = run("models", "list")
        assert printed.status == 0
        for model in models.MODELS.values():
            assert model.name in printed.out
            assert model.licence in printed.out

    def test_models_fetch(self, run: Run) -> None:
        printed = run("models", "fetch", "fmnist_dw", "byte_lm")
        assert printed.status == 0
        assert printed.out.splitlines()[0] == f"fmnist_dw {FASHION.path()}"
        printed = run("models", "fetch", "fmnist")
        assert printed.status == 2
        assert "did you mean fmnist_dw" in one_line(printed)

    def test_version(self, run: Run) -> None:
        printed = run("--version")
        assert printed.status == 0
        for text in (f"lucid-fx {lucid_fx.__version__}", "onnxruntime ", "native library ", "CPU "):
            assert text in printed.out

    def test_version_without_the_native_library(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cli, "load", lambda: None)
        assert "native library not built" in run("--version").out

    def test_help(self, run: Run) -> None:
        for command in (["quantize"], ["inspect"], ["demo"], ["models"]):
            printed = run(*command, "--help")
            assert printed.status == 0
            assert "Usage" in printed.out
            assert command[0] in run("--help").out

    def test_no_command_shows_the_help(self, run: Run) -> None:
        printed = run()
        assert printed.status == 2
        assert "quantize" in printed.out

    def test_an_unknown_command(self, run: Run) -> None:
        printed = run("quantise")
        assert printed.status == 2
        assert "No such command 'quantise'" in one_line(printed)

    def test_python_m(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "lucid_fx", "inspect", "none.onnx"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr == "error: there is no file 'none.onnx'\n"


class TestLooking:
    """diff, compare, print and bisect; what they find is tested beside their functions."""

    def test_compare_and_diff(self, run: Run, data: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.onnx"
        assert run("quantize", FASHION.path(), "--calib", data, "-o", out).status == 0
        printed = run("compare", FASHION.path(), out, "--data", data, "--top", 2)
        assert printed.status == 0, printed.err
        assert "culprits" in printed.out
        report = json.loads(run("compare", FASHION.path(), out, "--data", data, "--json").out)
        assert report["samples"] == 8
        assert report["tensors"]
        printed = run("diff", FASHION.path(), out)
        assert "rewritten" in printed.out
        assert json.loads(run("diff", FASHION.path(), out, "--json").out)["counts"]["rewritten"]
        assert run("diff", out, out).out.startswith("no difference")

    @pytest.mark.parametrize("stage", ["imported", "fused", "prepared", "converted"])
    def test_print_stages(self, run: Run, data: Path, stage: str) -> None:
        printed = run("print", FASHION.path(), "--stage", stage, "--calib", data)
        assert printed.status == 0, printed.err
        marks = {
            "imported": "BatchNormalization",
            "fused": "# fuse-conv-batch-norm",
            "prepared": "# insert-observers" if load() is not None else "Conv",
            "converted": "# assign-channels-last",
        }
        assert marks[stage] in printed.out

    def test_print_after(self, run: Run, data: Path, tmp_path: Path) -> None:
        every = run("print", FASHION.path(), "--stage", "fused", "--print-after", "all")
        assert every.out.count("# after ") > 1
        out = tmp_path / "out.onnx"
        printed = run(
            "quantize", FASHION.path(), "--calib", data, "-o", out, "--print-after", "insert-qdq"
        )
        assert "# after insert-qdq" in printed.out
        assert "DequantizeLinear" in printed.out
        wrong = run("print", FASHION.path(), "--stage", "fused", "--print-after", "insert-qd")
        assert wrong.status == 2
        assert "no pass 'insert-qd'" in wrong.err

    def test_print_a_scope(self, run: Run) -> None:
        printed = run("print", FASHION.path(), "--scope", "fc")
        assert printed.out.startswith("[fc] logits = Gemm")
        assert "no node or scope" in one_line(run("print", FASHION.path(), "--scope", "fcc"))

    def test_bisect(self, run: Run, data: Path) -> None:
        printed = run("bisect", FASHION.path(), "--data", data)
        assert printed.status == 0, printed.err
        assert "every pass keeps 15 dB" in printed.out
        report = json.loads(
            run("bisect", FASHION.path(), "--data", data, "--bound", 100, "--json").out
        )
        assert report["first"] == "insert-qdq"

    def test_errors_are_one_line(self, run: Run, data: Path, tmp_path: Path) -> None:
        none = tmp_path / "none.onnx"
        for arguments in (
            ("diff", FASHION.path(), none),
            ("compare", FASHION.path(), none, "--data", data),
            ("compare", FASHION.path(), FASHION.path(), "--data", none),
            ("print", none),
            ("print", FASHION.path(), "--stage", "converted"),
            ("bisect", none, "--data", data),
        ):
            printed = run(*arguments)
            assert printed.status == 2, arguments
            one_line(printed)
