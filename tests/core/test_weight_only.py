"""quantize_weights: what it makes of models, of configurations, and of memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from checks import model_from
from onnx import TensorProto, helper, numpy_helper

import lucid_fx
from lucid_fx import models
from lucid_fx.errors import (
    AlreadyQuantizedError,
    ConfigError,
    DataError,
    LucidFxWarning,
    ModelError,
)
from lucid_fx.graph_module import GraphModule
from lucid_fx.ir import saving
from lucid_fx.ir.walk import attribute, nodes
from lucid_fx.layer_inputs import gram_matrices
from lucid_fx.native.library import load
from lucid_fx.quantization import QConfigMapping, get_default_qconfig
from lucid_fx.quantization.block import QuantScheme, QuantValue, ScaleDtype
from lucid_fx.quantization.weight_only import WeightConfig

BYTE_LM = models.get("byte_lm")
FLOAT_PPL = 4.0871
native = pytest.mark.skipif(load() is None, reason="MatMulInt4 is native")
Mapping = QConfigMapping[WeightConfig]


def perplexity(module: GraphModule) -> float:
    session = module.session()
    return BYTE_LM.score(session.run)["ppl"]


def ops(module: GraphModule) -> list[str]:
    return [node.op_type for node in nodes(module.model)]


def of(module: GraphModule, name: str) -> Any:
    """The node that stands for a source node."""
    return next(
        node for node in nodes(module.model)
        if name in node.metadata_props.get("lucid_fx.origin", node.name).split("\n")
    )  # fmt: skip


@pytest.fixture(scope="module")
def scores() -> dict[str, float]:
    """Perplexity of byte_lm by method, with zero points and without."""
    data = BYTE_LM.calibration(64)
    return {
        f"{scheme} {method}": perplexity(
            lucid_fx.quantize_weights(BYTE_LM.path(), scheme, method=method, data=data)  # type: ignore[arg-type]
        )
        for scheme in ("int4", "uint4")
        for method in ("rtn", "hqq", "gptq")
    }


@pytest.mark.parametrize("scheme", ["int4", "uint4"])
def test_a_language_model_keeps_its_perplexity(scores: dict[str, float], scheme: str) -> None:
    """The limit of rounding is that of the 4-bit formats of other tools."""
    rtn, hqq, gptq = (scores[f"{scheme} {method}"] for method in ("rtn", "hqq", "gptq"))
    assert FLOAT_PPL - 0.01 < gptq < hqq < rtn <= FLOAT_PPL + 0.13
    assert gptq < FLOAT_PPL + 0.05


@native
def test_both_ops_hold_the_same_model() -> None:
    """In float32 they differ by the order of sums only; see test_matrix for the weights."""
    ours, theirs = (
        lucid_fx.quantize_weights(BYTE_LM.path(), op=op, compute="float32")  # type: ignore[arg-type]
        for op in ("matmulint4", "matmulnbits")
    )
    assert ops(ours).count("MatMulInt4") == ops(theirs).count("MatMulNBits") == 19
    for feed in BYTE_LM.evaluation(4).feeds:
        (a,), (b,) = ours.run(feed).values(), theirs.run(feed).values()
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-4)  # logits of about 20, six layers deep


@pytest.mark.fetched
def test_sentence_embeddings_stay_where_they_were() -> None:
    model = models.get("minilm_l3")
    module = lucid_fx.quantize_weights(model.path(), "uint4", method="hqq", op="matmulnbits")
    reference = lucid_fx.trace(model.path()).session()
    session = module.session()
    score = model.score(session.run, limit=64, reference=reference.run)
    assert score["cosine"] > 0.98, score
    assert score[model.metric] >= model.score(reference.run, limit=64)[model.metric] - 0.05
    assert module.nbytes < 0.75 * lucid_fx.trace(model.path()).nbytes  # 0.68 of it are embeddings


def test_schemes_and_overrides_reach_the_nodes() -> None:
    scheme = QuantScheme(QuantValue.Q8F).per_block([64], ScaleDtype.F32)
    module = lucid_fx.quantize_weights(
        BYTE_LM.path(), scheme, block_size=128, op="matmulnbits", compute="float32"
    )
    head = of(module, "lm_head")
    assert [attribute(head, name) for name in ("bits", "block_size", "accuracy_level")] == [
        8, 128, 1
    ]  # fmt: skip
    assert module.ledger["lm_head"].reason == "weights on Q8F, block 128, F32 scales, rtn"


def test_a_mapping_gives_layers_their_own_and_leaves_the_rest_to_the_scheme() -> None:
    mapping = Mapping().set_module_name("lm_head", None).set_module_name("h0", WeightConfig.parse(
        "uint4", block_size=16, method="hqq"
    ))  # fmt: skip
    module = lucid_fx.quantize_weights(
        BYTE_LM.path(), "int8", op="matmulnbits", qconfig_mapping=mapping
    )
    assert of(module, "lm_head").op_type == "MatMul"
    assert module.ledger["lm_head"].reason == "the configuration leaves it in float"
    for name, bits, block in (("h0/q/MatMul", 4, 16), ("h1/q/MatMul", 8, 32)):
        node = of(module, name)
        assert (attribute(node, "bits"), attribute(node, "block_size")) == (bits, block)
    only = Mapping().set_object_type("MatMul", None).set_module_name("lm_head", WeightConfig())
    module = lucid_fx.quantize_weights(BYTE_LM.path(), op="matmulnbits", qconfig_mapping=only)
    assert ops(module).count("MatMulNBits") == 1


def test_methods_mix() -> None:
    mapping = Mapping().set_module_name("h0", WeightConfig(method="gptq"))
    done: list[tuple[int, int | None]] = []
    module = lucid_fx.quantize_weights(
        BYTE_LM.path(), op="matmulnbits", qconfig_mapping=mapping, data=BYTE_LM.calibration(2),
        progress=lambda *numbers: done.append(numbers),
    )  # fmt: skip
    assert done[:6] == [(i, 19) for i in range(1, 7)]
    module.to_bytes()
    assert done == [(i, 19) for i in range(1, 20)]
    assert (
        "gptq" in module.ledger["h0/q/MatMul"].reason
        and "rtn" in module.ledger["h1/q/MatMul"].reason
    )


@pytest.mark.parametrize("with_library", [pytest.param(True, marks=native), False])
def test_gptq_sees_values_in_bodies_natively_only(
    with_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_library:
        monkeypatch.setattr("lucid_fx.layer_inputs.load", lambda: None)
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model = model_from(
        """g (bool c, float[8,64] x) => (float[8,64] y) <float[64,64] w> {
        y = If (c) <then_branch = t () => (float[8,64] a) { n = Relu (x) [m] a = MatMul (n, w) },
                    else_branch = e () => (float[8,64] b) { b = Neg (x) }> }""".replace(
            "<float[64,64] w>", f"<float[64,64] w = {{{', '.join(map(str, w.ravel()))}}}>"
        )
    )
    x = np.random.default_rng(1).standard_normal((4, 8, 64)).astype(np.float32)
    data = [{"c": np.asarray(i != 3), "x": x[i]} for i in range(4)]
    grams = gram_matrices(model, {"n": 64}, data)
    if with_library:
        seen = np.maximum(x[:3], 0).reshape(-1, 64).astype(np.float64)
        np.testing.assert_allclose(grams["n"], seen.T @ seen, rtol=1e-5, atol=1e-4)
    else:
        assert grams == {}
    module = lucid_fx.quantize_weights(model, method="gptq", data=data, op="matmulnbits")
    note = "m: its inputs cannot be seen without the native library: hqq"
    assert (note in module.ledger.notes) != with_library


def test_native_and_python_sums_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    if load() is None:
        pytest.skip("there is one way only")
    model, data = lucid_fx.trace(BYTE_LM.path()).model, BYTE_LM.calibration(3)
    columns = {"h0/ln1_out": 128, "h1/gh_out": 512}
    found = gram_matrices(model, columns, data)
    monkeypatch.setattr("lucid_fx.layer_inputs.load", lambda: None)
    for name, gram in gram_matrices(model, columns, data).items():
        np.testing.assert_allclose(found[name], gram, rtol=1e-4, atol=1e-4 * np.abs(gram).max())


def test_gptq_of_a_weight_with_two_readers_takes_both_inputs() -> None:
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    text = f"""g (float[8,64] x) => (float[8,64] y)
        <float[64,64] w = {{{", ".join(map(str, w.ravel()))}}}> {{
        [m] t = MatMul (x, w) r = Relu (t) [o] y = MatMul (r, w) }}"""
    x = np.random.default_rng(1).standard_normal((4, 8, 64)).astype(np.float32)
    module = lucid_fx.quantize_weights(
        model_from(text), method="gptq", data=list(x), op="matmulnbits"
    )
    assert ops(module) == ["MatMulNBits", "Relu", "MatMulNBits"]
    assert len(module.model.graph.initializers) == 2


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        ({"scheme": "int3"}, ConfigError, "scheme is 'int3': give one of int4"),
        ({"block_size": 48}, ConfigError, "block_size is 48: give one of 16"),
        ({"op": "matmul"}, ConfigError, "there is no op 'matmul'; known are auto"),
        ({"method": "gptq"}, DataError, "there are no samples; give some dozens as data"),
        ({"method": "gptq", "data": [{"ids": 1}]}, DataError, "sample 0: the model has no input"),
        (
            {"qconfig_mapping": Mapping().set_module_name("lm_hed", None)},
            ConfigError,
            "no node or scope is named 'lm_hed'; did you mean 'lm_head'",
        ),
        (
            {"qconfig_mapping": QConfigMapping[Any]().set_global(get_default_qconfig())},
            ConfigError,
            "the recipe of 'all nodes' is a QConfig; give a WeightConfig",
        ),
    ],
)
def test_configurations_that_cannot_be(call: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error) as raised:
        lucid_fx.quantize_weights(BYTE_LM.path(), **call)
    assert text in str(raised.value)


def test_calibration_does_not_take_weight_recipes() -> None:
    mapping: Any = Mapping().set_global(WeightConfig())
    with pytest.raises(ConfigError, match="is a WeightConfig; give a QConfig, or None"):
        lucid_fx.prepare_fx(BYTE_LM.path(), mapping)


def test_without_the_native_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid_fx.weight_only.load", lambda: None)
    with pytest.warns(LucidFxWarning, match="weights are written for onnxruntime's own"):
        module = lucid_fx.quantize_weights(BYTE_LM.path())
    assert "MatMulNBits" in ops(module)
    with pytest.raises(ConfigError, match="not installed; use matmulnbits"):
        lucid_fx.quantize_weights(BYTE_LM.path(), op="matmulint4")


def test_nothing_to_quantize_is_a_warning() -> None:
    with pytest.warns(LucidFxWarning, match="no weight was quantized; the ledger says why"):
        lucid_fx.quantize_weights(model_from("g (float[4] x) => (float[4] y) { y = Relu (x) }"))


def test_the_result_is_a_quantized_model(tmp_path: Path) -> None:
    module = lucid_fx.quantize_weights(BYTE_LM.path())
    module.save(tmp_path / "q.onnx")
    with pytest.raises(AlreadyQuantizedError, match=r"it holds MatMul(Int4|NBits)"):
        lucid_fx.trace(tmp_path / "q.onnx")
    again = lucid_fx.trace(tmp_path / "q.onnx", allow_quantized=True)
    assert again.ledger["lm_head"].status == "quantized"
    feed = BYTE_LM.evaluation(1).feeds[0]
    np.testing.assert_array_equal(again.run(feed)["logits"], module.run(feed)["logits"])


def write_layers(folder: Path, layers: int, side: int, inline: bool = False) -> Path:
    """A chain of square products, with weights in a second file or in the model's own."""
    folder.mkdir()
    random, path = np.random.default_rng(0), folder / "m.onnx"
    named, names = [], [f"x{i}" for i in range(layers + 1)]
    with (folder / "m.onnx.data").open("wb") as file:
        for index in range(layers):
            w = random.standard_normal((side, side), np.float32)
            if inline:
                named.append(numpy_helper.from_array(w, f"w{index}"))
                continue
            tensor = TensorProto(
                name=f"w{index}", data_type=1, dims=w.shape, data_location=TensorProto.EXTERNAL
            )
            places = {"location": "m.onnx.data", "offset": file.tell(), "length": w.nbytes}
            for key, value in places.items():
                tensor.external_data.add(key=key, value=str(value))
            w.tofile(file)
            named.append(tensor)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]], name=f"m{i}")
            for i in range(layers)
        ],
        "chain",
        [helper.make_tensor_value_info(names[0], 1, ["M", side])],
        [helper.make_tensor_value_info(names[-1], 1, ["M", side])],
        named,
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    if inline:
        (folder / "m.onnx.data").unlink()
    return path


PEAK = """
import re, sys, lucid_fx
lucid_fx.quantize_weights(sys.argv[1], op=sys.argv[2], method=sys.argv[3]).save(sys.argv[4])
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
"""Prints the most memory in kB. That of getrusage would count this process, which starts it."""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="Linux tells the peak there")
@pytest.mark.parametrize(
    ("op", "method", "inline"),
    [
        pytest.param("matmulint4", "rtn", False, marks=native),
        ("matmulnbits", "rtn", True),
        ("matmulnbits", "hqq", False),
    ],
)
def test_memory_does_not_grow_with_the_model(
    tmp_path: Path, op: str, method: str, inline: bool
) -> None:
    """Up to 600 MB of weights, 4 MB each: at most three of those, and 300 MB for Python."""
    side, layers = 1024, 150 if method == "rtn" else 60
    path = write_layers(tmp_path / "in", layers, side, inline)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, path, op, method, tmp_path / "q.onnx"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) * 1024 < 3 * 4 * side * side + 300_000_000
    assert (tmp_path / "q.onnx.data").stat().st_size > saving.EXTERNAL_LIMIT


def test_a_source_that_is_gone_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_layers(tmp_path / "in", 2, 64)
    module = lucid_fx.quantize_weights(path, op="matmulnbits")
    (tmp_path / "in" / "m.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"m.onnx.data' is missing \(tensor 'w0_codes'\)"):
        module.save(tmp_path / "q.onnx")
    assert not (tmp_path / "q.onnx").exists()


def test_a_big_result_lies_in_two_files_and_runs_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_layers(tmp_path / "in", 3, 128)
    module = lucid_fx.quantize_weights(path)
    monkeypatch.setattr(saving, "EXTERNAL_LIMIT", 1000)
    module.save(tmp_path / "q.onnx")
    again = lucid_fx.trace(tmp_path / "q.onnx", allow_quantized=True)
    x = np.random.default_rng(0).standard_normal((2, 128)).astype(np.float32)
    np.testing.assert_array_equal(again(x), module(x))
    offsets = [t.const_value.offset for t in again.model.graph.initializers.values()]  # type: ignore[union-attr]
    assert all(offset % saving.PAGE == 0 for offset in offsets)


@native
def test_running_our_op_without_the_library_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    module = lucid_fx.quantize_weights(BYTE_LM.path())
    monkeypatch.setattr("lucid_fx.runtime.session.library_path", lambda: None)
    with pytest.raises(ModelError, match="holds ops of the native library, which is not installed"):
        module.session()
