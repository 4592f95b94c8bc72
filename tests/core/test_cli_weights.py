"""`lucid-fx quantize --weights`: what it writes, and which options go together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import lucid_fx
from lucid_fx import cli, models
from lucid_fx.ir.walk import attribute, nodes
from lucid_fx.native.library import load

BYTE_LM = models.get("byte_lm")
MODEL = str(BYTE_LM.path())


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_it_writes_the_model_of_the_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, ledger = tmp_path / "q.onnx", tmp_path / "ledger.json"
    status = run(
        "quantize", MODEL, "--weights", "uint4", "--block", 64, "--weights-method", "hqq",
        "--weights-op", "matmulnbits", "--weights-compute", "float32", "--exclude", "h0",
        "--exclude", "lm_head", "-o", out, "--ledger", ledger,
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert status == 0
    assert "quantized  the weights of" in printed and ": U4, block 64, F16 scales, hqq" in printed
    written = lucid_fx.trace(out, allow_quantized=True)
    products = [node for node in nodes(written.model) if node.op_type == "MatMulNBits"]
    assert len(products) == 12
    for name, wanted in (("bits", 4), ("block_size", 64), ("accuracy_level", 1)):
        assert attribute(products[0], name) == wanted
    entries = {entry["node"]: entry for entry in json.loads(ledger.read_text())["entries"]}
    assert entries["h1/q/MatMul"]["reason"] == "weights on U4, block 64, F16 scales, hqq"
    assert entries["lm_head"]["reason"] == "the configuration leaves it in float"
    feed = BYTE_LM.evaluation(1).feeds[0]
    assert np.isfinite(written.run(feed)["logits"]).all()


def calibration(folder: Path) -> Path:
    path = folder / "data.npz"
    np.savez(path, input_ids=np.concatenate([f["input_ids"] for f in BYTE_LM.calibration(4)]))
    return path


def test_gptq_reads_calibration_samples(tmp_path: Path) -> None:
    out, data = tmp_path / "q.onnx", calibration(tmp_path)
    options = ["--weights", "int4", "--weights-method", "gptq", "--calib", data, "-o", out]
    assert run("quantize", MODEL, *options) == 0
    assert "gptq" in lucid_fx.trace(out, allow_quantized=True).ledger["lm_head"].reason


@pytest.mark.skipif(load() is None, reason="MatMulInt4 is native")
def test_the_default_op_is_ours_where_the_library_is(tmp_path: Path) -> None:
    assert run("quantize", MODEL, "--weights", "int8", "-o", tmp_path / "q.onnx") == 0
    written = lucid_fx.trace(tmp_path / "q.onnx", allow_quantized=True)
    assert sum(node.op_type == "MatMulInt4" for node in nodes(written.model)) == 19


def test_strict_counts_what_nobody_excluded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fashion, out = models.get("fmnist_dw").path(), tmp_path / "q.onnx"
    small = [n for n in nodes(lucid_fx.trace(fashion).model) if n.op_type in ("MatMul", "Gemm")]
    assert len(small) == 1
    options = ["quantize", fashion, "--weights", "int4", "-o", out, "--strict"]
    assert run(*options) == 3
    error = capsys.readouterr().err
    assert "1 node was not quantized, nothing is written" in error and "is small" in error
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--format", "qdq"], "--format is about activations, which --weights leaves as they are."),
        (["--observer", "minmax"], "--observer is about activations"),
        (["--target", "auto"], "--target is about activations"),
        (["--calib", "d.npz"], "--calib is read by the method gptq only"),
        (
            ["--weights-method", "gptq"],
            "Missing option '--calib', which the method gptq needs.",
        ),
        (["--block", "20"], "block_size is 20: give one of 16, 32, 64, 128, 256"),
        (["--exclude", "lm_hed"], "no node or scope is named 'lm_hed'; did you mean 'lm_head'"),
        (["--weights", "int3"], "'int3' is not one of 'int4'"),
        (["-o", MODEL], "would overwrite"),
    ],
)
def test_what_does_not_go_together_is_one_line_and_status_2(
    options: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "q.onnx"
    chosen = ["--weights", "int4", "--weights-op", "matmulnbits", "-o", out]
    assert run("quantize", MODEL, *chosen, *options) == 2
    error = capsys.readouterr().err
    assert text in error and len(error.strip().splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize(
    "option", ["--block", "--weights-method", "--weights-op", "--weights-compute"]
)
def test_options_of_weights_need_weights(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    value = {"--block": "32", "--weights-method": "hqq", "--weights-op": "auto"}.get(option, "int8")
    assert run("quantize", MODEL, "-o", "q.onnx", option, value) == 2
    assert (
        f"{option} says how --weights are quantized, which is not given." in capsys.readouterr().err
    )


RECIPE = """
exclude = ["lm_head"]
[weights]
scheme = "int4"
op = "matmulnbits"
method = "hqq"
[modules]
h0 = { weights = { scheme = "uint8", block = 128 } }
h1 = "float"
"""


def test_a_recipe_gives_layers_their_own(tmp_path: Path) -> None:
    recipe, out = tmp_path / "r.toml", tmp_path / "q.onnx"
    recipe.write_text(RECIPE)
    assert run("quantize", MODEL, "--recipe", recipe, "--block", 64, "-o", out) == 0
    ledger = lucid_fx.trace(out, allow_quantized=True).ledger
    wanted = {
        "h0/q/MatMul": "weights on U8, block 128, F16 scales, hqq",
        "h1/q/MatMul": "the configuration leaves it in float",
        "h2/q/MatMul": "weights on Q4F, block 64, F16 scales, hqq",
        "lm_head": "the configuration leaves it in float",
    }
    assert {name: ledger[name].reason for name in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"weights": {"scheme": "int5"}}', "weights.scheme cannot be"),
        ('{"weights": {"block": 8}}', "weights.block must be a whole number from 16 to 256"),
        ('{"weights": {"block": 17}}', "block_size is 17: give one of 16"),
        ('{"weights": {"blok": 32}}', "weights has no key 'blok'; did you mean 'block'?"),
        (
            '{"weights": {}, "modules": {"h0": {"weights": {"op": "auto"}}}}',
            "modules.h0.weights has no key 'op'",
        ),
        (
            '{"modules": {"h0": {"weights": {}}}}',
            "modules.h0.weights is for models whose weights alone are quantized",
        ),
        (
            '{"weights": {}, "types": {"MatMul": {"activation": {"observer": "minmax"}}}}',
            "types.MatMul is about activations, and weights alone are quantized",
        ),
    ],
)
def test_recipes_that_cannot_be(
    text: str, error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.json"
    recipe.write_text(text)
    data = [] if '{"weights"' in text[:11] else ["--calib", calibration(tmp_path)]
    assert run("quantize", MODEL, "--recipe", recipe, "-o", tmp_path / "q.onnx", *data) == 2
    assert error in capsys.readouterr().err
