"""Odd but valid models: each goes in, is quantized, and comes out right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import lucid_fx
from lucid_fx.errors import DataError, LucidFxError, ModelError
from lucid_fx.ir import saving

HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>'
RNG = [np.random.default_rng(7)]
FORMATS = ["qoperator", "qdq"]


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    RNG[0] = np.random.default_rng(7)


def model_of(text: str, opset: int = 17, **weights: Any) -> onnx.ModelProto:
    """A model from ONNX text without header, with further initializers."""
    model = parser.parse_model(HEADER.format(opset=opset) + text)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def matrix(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG[0].normal(size=shape).astype(dtype)


def check(model: Any, feeds: list[Any], format: str = "qoperator", least: float = 20.0) -> Any:
    """Quantize, and compare with the float model on the same feeds."""
    result = lucid_fx.quantize(model, feeds, format=format)  # type: ignore[arg-type]
    truth = lucid_fx.trace(model)
    for feed in feeds:
        for name, wanted in truth.run(truth.feed(feed)).items():
            given = result.run(result.feed(feed))[name]
            assert given.dtype == wanted.dtype and given.shape == wanted.shape, name
            if wanted.dtype.kind not in "fV":
                assert np.array_equal(given, wanted), name
            elif wanted.size:
                exact = wanted.astype(np.float64)
                noise = float(np.sum((given.astype(np.float64) - exact) ** 2))
                assert noise <= np.sum(exact**2) * 10 ** (-least / 10) + 1e-12, name
    return result


def quantized(result: Any) -> set[str]:
    return {entry.op_type for entry in result.ledger if entry.status == "quantized"}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_keeps_its_interface_and_computes_on_codes(dtype: str, format: str) -> None:
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    half = f"{dtype}[N,4,12,12]"
    text = f"""net ({half} x, int64[3] i) => ({dtype}[N,8,10,10] y, {dtype}[3,8] z) {{
        c = Conv (x, w) y = Relu (c) z = Gather (table, i) }}"""
    model = model_of(text, w=matrix(8, 4, 3, 3, dtype=kind), table=matrix(10, 8, dtype=kind))
    feeds = [{"x": matrix(1, 4, 12, 12, dtype=kind), "i": np.array([1, 2, 9])} for _ in range(3)]
    if dtype == "float16":
        result = check(model, feeds, format)
    else:  # onnxruntime has no bfloat16 Conv to compare with
        result = lucid_fx.quantize(model, feeds, format=format)  # type: ignore[arg-type]
        assert result.run(feeds[0])["y"].dtype == ml_dtypes.bfloat16
    assert "Conv" in quantized(result)
    kept = result.model.graph.initializers["table"]
    assert dtype == "bfloat16" or kept.dtype == ir.DataType.FLOAT16


def test_double_stays_float_with_a_reason() -> None:
    text = "net (double[N,8] x) => (double[N,4] y) { t = MatMul (x, w) y = Relu (t) }"
    model = model_of(text, w=matrix(8, 4, dtype=np.float64))
    result = check(model, [matrix(2, 8, dtype=np.float64)])
    assert "float32 only" in next(e.reason for e in result.ledger if e.op_type == "MatMul")


def test_no_nodes_and_outputs_that_are_inputs_or_initializers() -> None:
    text = "net (float[2] x) => (float[2] x, float[3] w) <float[3] w = {1, 2, 3}> {}"
    result = check(model_of(text), [matrix(2)])
    assert result.output_names == ["x", "w"]


def test_initializer_that_is_an_output_and_a_weight() -> None:
    text = "net (float[N,6] x) => (float[N,6] y, float[6,6] w) { y = MatMul (x, w) }"
    check(model_of(text, w=matrix(6, 6)), [matrix(3, 6)])


def test_the_same_value_as_two_outputs_through_identity() -> None:
    text = """net (float[N,6] x) => (float[N,6] a, float[N,6] b) {
        a = MatMul (x, w) b = Identity (a) }"""
    check(model_of(text, w=matrix(6, 6)), [matrix(3, 6)])


def test_scalars_and_empty_tensors() -> None:
    text = """net (float x, float[0,4] e) => (float y, float[0,3] z, float[0,4] r) {
        y = Mul (x, x) z = MatMul (e, w) r = Relu (e) }"""
    check(model_of(text, w=matrix(4, 3)), [{"x": np.float32(2), "e": np.zeros((0, 4), np.float32)}])


@pytest.mark.parametrize("format", FORMATS)
def test_empty_images(format: str) -> None:
    text = "net (float[N,3,8,8] x) => (float[N,4,6,6] y) { y = Conv (x, w) }"
    check(model_of(text, w=matrix(4, 3, 3, 3)), [np.zeros((0, 3, 8, 8), np.float32)], format)


def test_optional_empty_inputs() -> None:
    text = """net (float[N,3,8,8] x) => (float[N,4,8,8] y) {
        c = Conv <pads = [1,1,1,1]> (x, w) y = Clip (c, , six) }"""
    model = model_of(text, w=matrix(4, 3, 3, 3), six=np.float32(0.5))
    check(model, [matrix(1, 3, 8, 8) for _ in range(3)])


def test_constant_nodes_of_every_kind() -> None:
    text = """net (float[2,3] x) => (float[2,3] y, string s, int64[2] i, float[4] d, float[2] f) {
        k = Constant <value_float = 2.5> () y = Mul (x, k)
        s = Constant <value_string = "hello"> ()
        a = Constant <value_ints = [1, 2]> () n = Constant <value_int = 3> () i = Add (a, n)
        p = Constant <value_floats = [0.5, 1.5]> () f = Mul (p, k)
        d = Identity (sparse) }"""
    model = model_of(text, opset=16)
    values = onnx.helper.make_tensor("values", onnx.TensorProto.FLOAT, [2], [3.0, 4.0])
    places = onnx.helper.make_tensor("places", onnx.TensorProto.INT64, [2], [1, 3])
    sparse = onnx.helper.make_sparse_tensor(values, places, [4])
    node = onnx.helper.make_node("Constant", [], ["sparse"], sparse_value=sparse)
    model.graph.node.insert(0, node)
    result = check_numbers_and_strings(model, matrix(2, 3))
    assert result["d"].tolist() == [0, 3, 0, 4]


def check_numbers_and_strings(model: onnx.ModelProto, x: np.ndarray) -> dict[str, Any]:
    result = lucid_fx.quantize(model, [x]).run({"x": x})
    assert result["s"] == "hello" and result["i"].tolist() == [4, 5]
    assert np.allclose(result["y"], x * 2.5) and np.allclose(result["f"], [1.25, 3.75])
    return result


def test_initializers_as_graph_inputs_become_constants() -> None:
    text = """net (float[N,6] x, float[6,6] w) => (float[N,6] y) { y = MatMul (x, w) }"""
    model = model_of(text, w=matrix(6, 6))
    result = lucid_fx.quantize(model, [matrix(3, 6)])
    assert result.input_names == ["x"] and quantized(result) == {"MatMul"}
    assert any("became constants: w" in note for note in result.ledger.notes)


@pytest.mark.parametrize("format", FORMATS)
def test_functions_are_inlined(format: str) -> None:
    text = (
        '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>'
        "net (float[N,6] x) => (float[N,6] y) <float[6,6] w> { y = local.block (x, w) }"
        '<domain: "local", opset_import: ["" : 17]> block (a, b) => (c) '
        "{ t = MatMul (a, b) c = Relu (t) }"
    ).replace("<float[6,6] w>", "<float[6,6] w = {" + ",".join(map(str, matrix(36))) + "}>")
    result = check(parser.parse_model(text), [matrix(3, 6) for _ in range(3)], format)
    assert "MatMul" in quantized(result)


@pytest.mark.parametrize("format", FORMATS)
def test_bodies_with_the_same_names_inside(format: str) -> None:
    text = """net (float[2,6] x, bool c) => (float[2,6] y) {
        y = If (c) <then_branch = yes () => (float[2,6] o) { t = MatMul (x, w) o = Relu (t) },
                    else_branch = no () => (float[2,6] o) { t = MatMul (x, w) o = Neg (t) }> }"""
    feeds = [{"x": matrix(2, 6), "c": np.array(k % 2 == 0)} for k in range(4)]
    result = check(model_of(text, w=matrix(6, 6)), feeds, format)
    assert sum(e.op_type == "MatMul" and e.status == "quantized" for e in result.ledger) == 2


@pytest.mark.parametrize("format", FORMATS)
def test_loops_and_scans(format: str) -> None:
    text = """net (float[1,6] x, int64 n, float[4,6] s) => (float[1,6] y, float[4,6] z) {
        t = Constant <value_int = 1> () yes = Cast <to = 9> (t)
        y = Loop (n, yes, x) <body = step (int64 i, bool go, float[1,6] h) =>
            (bool more, float[1,6] next) { more = Identity (go) m = MatMul (h, w) next = Tanh (m) }>
        q = Constant <value_float = 0.0> ()
        last, z = Scan <num_scan_inputs = 1, body = each (float[6] a, float[6] r) =>
            (float[6] b, float[6] o) { b = Add (a, r) u = Unsqueeze (b, zero) v = MatMul (u, w)
            o = Squeeze (v, zero) }> (start, s) }"""
    model = model_of(text, w=matrix(6, 6) / 3, start=np.zeros(6, np.float32), zero=np.array([0]))
    feeds = [{"x": matrix(1, 6), "n": np.array(3), "s": matrix(4, 6)} for _ in range(3)]
    result = check(model, feeds, format)
    assert sum(e.op_type == "MatMul" and e.status == "quantized" for e in result.ledger) == 2


def test_unnamed_and_twice_named_nodes() -> None:
    text = "net (float[N,6] x) => (float[N,6] z) { y = MatMul (x, w) z = MatMul (y, w) }"
    model = model_of(text, w=matrix(6, 6))
    for node in model.graph.node:
        node.name = "twice"
    result = check(model, [matrix(3, 6)])
    assert len(result.ledger) == 2


def test_sequences_go_through() -> None:
    text = """net (seq(float[2,6]) s, float[2,6] x) => (seq(float[2,6]) r, float[2,6] y) {
        y = MatMul (x, w) r = SequenceInsert (s, x) }"""
    feed = {"s": [matrix(2, 6)], "x": matrix(2, 6)}
    result = lucid_fx.quantize(model_of(text, w=matrix(6, 6)), [feed])
    given = result.run(feed)
    assert len(given["r"]) == 2 and quantized(result) == {"MatMul"}


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A model whose weights lie beside it."""
    folder = tmp_path / "float"
    folder.mkdir()
    model = model_of(
        "net (float[N,64] x) => (float[N,64] y) { t = MatMul (x, w) r = Relu (t) y = Div (r, v) }",
        w=matrix(64, 64), v=np.abs(matrix(64)) + 1,
    )  # fmt: skip
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_external_data_from_a_path(external: Path, tmp_path: Path, format: str) -> None:
    feeds = [matrix(2, 64) for _ in range(3)]
    result = check(external, feeds, format)
    out = tmp_path / "out" / "int8.onnx"
    out.parent.mkdir()
    result.save(out)
    assert [file.name for file in out.parent.iterdir()] == ["int8.onnx"]
    for file in external.parent.iterdir():
        file.unlink()
    again = lucid_fx.trace(out, allow_quantized=True)
    assert np.array_equal(again(feeds[0]), again(feeds[0]))


def test_big_models_are_written_with_data_beside_them(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "EXTERNAL_LIMIT", 1000)
    monkeypatch.setattr("lucid_fx.runtime.session.INLINE_LIMIT", 1000)
    feeds = [matrix(2, 64) for _ in range(3)]
    result = check(external, feeds)
    out = tmp_path / "int8.onnx"
    result.save(out)
    assert (tmp_path / "int8.onnx.data").stat().st_size >= 64 * 64
    again = lucid_fx.trace(out, allow_quantized=True)
    assert np.array_equal(again(feeds[0]), result(feeds[0]))
    again.save(out)  # over the very file that it reads
    assert np.array_equal(lucid_fx.trace(out, allow_quantized=True)(feeds[0]), result(feeds[0]))


def test_missing_external_data_is_named(external: Path) -> None:
    (external.parent / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin"):
        lucid_fx.quantize(external, [matrix(2, 64)])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: setattr(m.opset_import[0], "version", 10), "operator set 10"),
        (lambda m: setattr(m.opset_import[0], "version", 99), "operator set 99"),
        (lambda m: setattr(m, "ir_version", 99), "IR version 99"),
    ],
)
def test_versions_out_of_reach_are_refused(change: Any, text: str) -> None:
    model = model_of("net (float[2] x) => (float[2] y) { y = Relu (x) }")
    change(model)
    with pytest.raises(ModelError, match=text):
        lucid_fx.quantize(model, [matrix(2)])


@pytest.mark.parametrize("version", [4, 7, 10, 14])
def test_ir_versions(version: int) -> None:
    text = "net (float[N,6] x) => (float[N,6] y) { y = MatMul (x, w) }"
    model = model_of(text, 11, w=matrix(6, 6))
    model.ir_version = version
    check(model, [matrix(3, 6)])


def test_samples_of_another_type_are_refused() -> None:
    model = model_of("net (float[2] x) => (float[2] y) { y = Relu (x) }")
    with pytest.raises(DataError, match="float64"):
        lucid_fx.quantize(model, [np.zeros(2)])


def test_not_a_model() -> None:
    with pytest.raises(LucidFxError, match="cannot take a model from int"):
        lucid_fx.quantize(3, [np.zeros(2)])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("opset", range(11, 29))
def test_every_operator_set(opset: int, format: str) -> None:
    text = """net (float[1,4,8,8] x) => (float[1,6] y, float[1,4,4,4] z) {
        c = Conv <pads = [1,1,1,1]> (x, k) r = Clip (c, low, high)
        p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r) d = Conv (p, k1) z = Add (d, p)
        g = GlobalAveragePool (z)
        f = Flatten (g) h = MatMul (f, w) s = Sigmoid (h) m = Mul (s, h) y = Gemm (m, v) }"""
    model = model_of(
        text, opset, k=matrix(4, 4, 3, 3) / 3, k1=matrix(4, 4, 1, 1), w=matrix(4, 6),
        v=matrix(6, 6), low=np.float32(0), high=np.float32(3),
    )  # fmt: skip
    result = check(model, [matrix(1, 4, 8, 8) for _ in range(4)], format, least=15)
    assert {"Conv", "MatMul", "Gemm", "Clip", "MaxPool"} <= quantized(result)
    raised = max(opset, 13 if format == "qdq" else 12)
    assert result.model.graph.opset_imports[""] == raised
    if 13 <= raised < 28 and format == "qdq":
        assert all(n.domain == "" for n in result.model.graph if "Linear" in n.op_type)
