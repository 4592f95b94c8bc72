"""What hurts users of other quantizers, each as a small model with the outcome that is right."""

from __future__ import annotations

import tracemalloc
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import lucid_fx
from lucid_fx.errors import CalibrationError, ConfigError, LucidFxWarning
from lucid_fx.ir.walk import nodes
from lucid_fx.passes.weights import PAIR_LIMIT
from lucid_fx.quantization import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PerChannelMinMaxObserver,
    QConfig,
    QConfigMapping,
    get_default_qconfig_mapping,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    quint8,
)

FORMATS = pytest.mark.parametrize("format", ["qoperator", "qdq"])
HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>'


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def model_of(text: str, opset: int = 17, **weights: Any) -> onnx.ModelProto:
    model = parser.parse_model(HEADER.format(opset=opset) + text)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def quantize(model: Any, feeds: Any, format: Any = "qoperator", **options: Any) -> Any:
    return lucid_fx.quantize(model, feeds, format=format, **options)


def sqnr(model: onnx.ModelProto, result: Any, feeds: list[Any]) -> float:
    truth = lucid_fx.trace(model)
    pairs = [(np.asarray(truth(*_args(f))), np.asarray(result(*_args(f)))) for f in feeds]
    signal = sum(float(np.sum(a.astype(float) ** 2)) for a, _ in pairs)
    noise = sum(float(np.sum((a.astype(float) - b) ** 2)) for a, b in pairs)
    return 10 * float(np.log10(signal / max(noise, 1e-30)))


def _args(feed: Any) -> tuple[Any, ...]:
    return tuple(feed) if isinstance(feed, list | tuple) else (feed,)


def quantized(result: Any) -> list[str]:
    return [entry.op_type for entry in result.ledger if entry.status == "quantized"]


def recipe(observer: Any = HistogramObserver, **options: Any) -> QConfigMapping:
    activation = observer.with_args(**options)
    return QConfigMapping().set_global(QConfig(activation, PerChannelMinMaxObserver.with_args()))


def test_1_memory_does_not_grow_with_the_samples(rng: np.random.Generator) -> None:
    names = ["x", *(f"t{i}" for i in range(7)), "y"]
    body = " ".join(f"{b} = Conv <pads = [1,1,1,1]> ({a}, w)" for a, b in pairwise(names))
    text = f"net (float[1,8,64,64] x) => (float[1,8,64,64] y) {{ {body} }}"
    model = model_of(text, w=rng.normal(size=(8, 8, 3, 3)).astype(np.float32) / 8)
    sample = rng.normal(size=(1, 8, 64, 64)).astype(np.float32)
    prepared = lucid_fx.prepare_fx(model)
    lucid_fx.calibrate(prepared, [sample] * 8)
    tracemalloc.start()
    lucid_fx.calibrate(prepared, (sample for _ in range(64)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * sample.nbytes


@pytest.mark.parametrize("observer", [MinMaxObserver, HistogramObserver])
def test_3_no_sample_is_lost(observer: Any) -> None:
    prepared = lucid_fx.prepare_fx(conv_model(), recipe(observer))
    for value in (100.0, 1.0, 2.0, 3.0):
        prepared(np.full((1, 1, 4, 4), value, np.float32))
    prepared.statistics()
    seen = prepared.observers["x"]
    assert (float(seen.min_val), float(seen.max_val)) == (1.0, 100.0)


def conv_model(**weights: Any) -> onnx.ModelProto:
    return model_of(
        "net (float[N,1,H,W] x) => (float[N,2,H2,W2] y) { y = Conv (x, w) }",
        w=weights.get("w", np.linspace(-1, 1, 18, dtype=np.float32).reshape(2, 1, 3, 3)),
    )


@pytest.mark.parametrize(
    "observer", [MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver]
)
def test_8_shapes_may_differ_from_sample_to_sample(observer: Any, rng: np.random.Generator) -> None:
    feeds = [rng.normal(size=(n, 1, 8 + n, 9)).astype(np.float32) for n in (2, 3, 5)]
    result = quantize(conv_model(), feeds, qconfig_mapping=recipe(observer))
    assert quantized(result) == ["Conv"]
    assert sqnr(conv_model(), result, feeds) > 25


@pytest.mark.parametrize(
    "observer", [MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver]
)
def test_9_values_that_are_not_finite_are_reported_by_name(observer: Any) -> None:
    sample = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8)
    bad = [sample.copy() for _ in range(3)]
    bad[1][0, 0, 0, 0], bad[2][0, 0, 0, 0] = np.nan, -np.inf
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = quantize(conv_model(), bad, qconfig_mapping=recipe(observer))
    assert any("tensor 'x': 1 NaN and 1 infinite" in str(warning.message) for warning in told)
    scales = [v.const_value.numpy() for k, v in initializers(result).items() if "scale" in k]
    assert scales and all(np.isfinite(scale).all() for scale in scales)
    assert sqnr(conv_model(), result, [sample]) > 25
    with pytest.raises(CalibrationError, match="'x'"):
        quantize(conv_model(), bad, nonfinite="error")


def initializers(result: Any) -> dict[str, Any]:
    return dict(result.model.graph.initializers)


def test_10_what_the_configuration_names_must_exist(rng: np.random.Generator) -> None:
    sample = rng.normal(size=(1, 1, 8, 8)).astype(np.float32)
    mapping = get_default_qconfig_mapping().set_object_type(("Conv",), None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"\('Conv',\)"):
        quantize(conv_model(), [sample], qconfig_mapping=mapping)
    mapping = get_default_qconfig_mapping().set_object_type("Cnv", None)
    with pytest.raises(ConfigError, match=r"'Cnv'.*did you mean 'Conv'"):
        quantize(conv_model(), [sample], qconfig_mapping=mapping)


def test_16_one_bad_layer_is_named_and_kept_float_in_one_step(rng: np.random.Generator) -> None:
    names = ["x", *(f"t{i}" for i in range(5)), "y"]
    body = " ".join(
        f"{b} = Gemm <transB = 1> ({a}, w{i})" for i, (a, b) in enumerate(pairwise(names))
    )
    weights = {f"w{i}": rng.normal(size=(16, 16)).astype(np.float32) / 4 for i in range(6)}
    weights["w3"][:, 0] *= 100
    text = f"net (float[N,16] x) => (float[N,16] y) {{ {body} }}"
    model = model_of(text, **weights)
    feeds = [rng.normal(size=(8, 16)).astype(np.float32) for _ in range(4)]
    mapping = get_default_qconfig_mapping().set_module_name("Gemm_t3", None)
    result = quantize(model, feeds, qconfig_mapping=mapping)
    entry = result.ledger["Gemm_t3"]
    assert (entry.status, entry.reason) == ("float", "the configuration leaves it in float")
    assert quantized(result).count("Gemm") == 5


@FORMATS
@pytest.mark.parametrize("opset", [12, 17])
def test_17_a_written_out_layer_norm_is_one_op(
    rng: np.random.Generator, opset: int, format: str
) -> None:
    text = """net (float[N,5,16] x) => (float[N,5,16] y) {
        m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) q = Pow (d, two)
        v = ReduceMean <axes = [-1]> (q) e = Add (v, eps) s = Sqrt (e) n = Div (d, s)
        g = Mul (n, gamma) b = Add (g, beta) y = MatMul (b, w) }"""
    ones = rng.normal(size=16).astype(np.float32)
    model = model_of(
        text, opset, two=np.float32(2), eps=np.float32(1e-5), gamma=ones, beta=ones,
        w=rng.normal(size=(16, 16)).astype(np.float32),
    )  # fmt: skip
    feeds = [rng.normal(size=(2, 5, 16)).astype(np.float32) * 30 for _ in range(4)]
    result = quantize(model, feeds, format)
    assert "LayerNormalization" in [node.op_type for node in nodes(result.model)]
    assert quantized(result) == ["MatMul"] and sqnr(model, result, feeds) > 30


SATURATING = {
    "MatMul": "net (float[N,64] x) => (float[N,16] y) { y = MatMul (x, w) }",
    "Gemm": "net (float[N,64] x) => (float[N,16] y) { y = Gemm <transB = 1> (x, v) }",
    "Conv": "net (float[N,64,4,4] x) => (float[N,16,4,4] y) { y = Conv (x, k) }",
}


@FORMATS
@pytest.mark.parametrize("op_type", SATURATING)
def test_21_no_pair_sum_saturates(op_type: str, format: str, rng: np.random.Generator) -> None:
    """u8 times s8 adds two products in 16 bits on CPUs without VNNI."""
    signs = np.sign(rng.normal(size=(64, 16))).astype(np.float32)
    signs[:2] = 1
    weights = {"MatMul": {"w": signs}, "Gemm": {"v": signs.T.copy()},
               "Conv": {"k": signs.T.reshape(16, 64, 1, 1).copy()}}[op_type]  # fmt: skip
    model = model_of(SATURATING[op_type], **weights)
    shape = (4, 64, 4, 4) if op_type == "Conv" else (4, 64)
    feeds = [rng.uniform(0.8, 1, size=shape).astype(np.float32) for _ in range(4)]
    result = quantize(model, feeds, format, target="cpu-avx2")
    assert quantized(result) == [op_type]
    for node in nodes(result.model):
        for value in node.inputs:
            tensor = value.const_value if value is not None else None
            if tensor is not None and tensor.dtype == ir.DataType.INT8 and len(tensor.shape) > 1:
                assert worst_pair(tensor.numpy().astype(int)) <= PAIR_LIMIT
    assert sqnr(model, result, feeds) > 30


def worst_pair(codes: np.ndarray) -> int:
    """The largest sum of neighbours along the dot product, of one sign."""
    columns = codes.reshape(16, 64).T if codes.shape[0] == 16 else codes
    pairs = columns.reshape(32, 2, 16)
    positive, negative = np.maximum(pairs, 0).sum(1), np.minimum(pairs, 0).sum(1)
    return int(max(positive.max(), -negative.min()))


@pytest.mark.parametrize("op_type", SATURATING)
def test_21_the_result_is_that_of_plain_integers(op_type: str, rng: np.random.Generator) -> None:
    """A Conv in front keeps the product on static codes, which numpy then multiplies out."""
    text = """net (float[N,64,4,4] x) => (float[N,16,4,4] y) { y = Conv (x, k) }"""
    signs = np.sign(rng.normal(size=(16, 64, 1, 1))).astype(np.float32)
    model = model_of(text, k=signs)
    feeds = [rng.uniform(0.8, 1, size=(2, 64, 4, 4)).astype(np.float32) for _ in range(4)]
    result = quantize(model, feeds, "qdq", target="cpu-avx2")
    lowered = quantize(model, feeds, "qoperator", target="cpu-avx2")
    conv = next(node for node in nodes(result.model) if node.op_type == "Conv")
    x, w = (value.producer() for value in conv.inputs[:2])
    b = conv.inputs[2].producer() if len(conv.inputs) > 2 else None  # type: ignore[union-attr]
    q = next(iter(conv.outputs[0].uses())).node
    scale, zero, w_scale, y_scale, y_zero = (
        v.const_value.numpy().astype(np.float64)
        for v in (x.inputs[1], x.inputs[2], w.inputs[1], q.inputs[1], q.inputs[2])
    )
    codes = np.clip(np.rint(feeds[0] / np.float32(scale)) + zero, 0, 255).astype(np.int64)
    weight = w.inputs[0].const_value.numpy().astype(np.int64).reshape(16, 64)
    total = np.einsum("oc,nchw->nohw", weight, codes - int(zero))
    if b is not None:
        total += b.inputs[0].const_value.numpy().astype(np.int64).reshape(1, 16, 1, 1)
    exact = total * (scale * w_scale.reshape(1, -1, 1, 1) / y_scale)
    wanted = (np.clip(np.rint(exact) + y_zero, 0, 255) - y_zero) * y_scale
    for given in (result(feeds[0]), lowered(feeds[0])):
        assert np.abs(given - wanted).max() <= 1.001 * y_scale  # ties may round either way
        assert np.mean(np.abs(given - wanted) > 0.5 * y_scale) < 0.01


@FORMATS
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", [qint8, quint8])
def test_22_biases_do_not_overflow(
    format: str, per_channel: bool, dtype: Any, rng: np.random.Generator
) -> None:
    text = "net (float[N,4,6,6] x) => (float[N,8,4,4] y) { y = Conv (x, w, b) }"
    weight = (rng.normal(size=(8, 4, 3, 3)) * 1e-7).astype(np.float32)
    weight[0] = rng.normal(size=(4, 3, 3))
    model = model_of(text, w=weight, b=np.full(8, 5, np.float32))
    observer = PerChannelMinMaxObserver if per_channel else MinMaxObserver
    scheme = per_channel_symmetric if per_channel else per_tensor_symmetric
    weights = (
        observer.with_args(ch_axis=0, qscheme=scheme, qdtype=dtype)
        if per_channel
        else observer.with_args(qscheme=scheme, qdtype=dtype)
    )
    mapping = QConfigMapping().set_global(QConfig(HistogramObserver.with_args(), weights))
    feeds = [rng.normal(size=(2, 4, 6, 6)).astype(np.float32) for _ in range(4)]
    result = quantize(model, feeds, format, qconfig_mapping=mapping)
    assert quantized(result) == ["Conv"]
    given = result(feeds[0])
    assert np.abs(given[:, 1:] - 5).max() < 0.1 and sqnr(model, result, feeds) > 25


@FORMATS
def test_24_dead_channels_and_constant_zero(format: str, rng: np.random.Generator) -> None:
    text = """net (float[N,4,6,6] x) => (float[N,8,4,4] y, float[N,8,2,2] z) {
        y = Conv (x, w) n = Mul (y, zero) z = Conv (n, v) }"""
    weight = rng.normal(size=(8, 4, 3, 3)).astype(np.float32)
    weight[0], weight[1] = 0, rng.normal(size=(4, 3, 3)) * 1e-6
    model = model_of(
        text, w=weight, v=rng.normal(size=(8, 8, 3, 3)).astype(np.float32), zero=np.float32(0)
    )
    feeds = [rng.normal(size=(2, 4, 6, 6)).astype(np.float32) for _ in range(4)]
    result = quantize(model, feeds, format)
    y, z = result(feeds[0])
    assert not y[:, 0].any() and not z.any() and np.isfinite(y).all()
    for name, value in initializers(result).items():
        if "scale" in name and value.dtype == ir.DataType.FLOAT:
            scale = value.const_value.numpy()
            assert np.isfinite(scale).all() and (scale > 0).all(), name


@FORMATS
@pytest.mark.parametrize("dtype", [qint8, quint8])
@pytest.mark.parametrize("scheme", [per_tensor_affine, per_tensor_symmetric])
def test_25_a_relu_clips_whatever_the_grid(
    format: str, scheme: Any, dtype: Any, rng: np.random.Generator
) -> None:
    text = """net (float[N,4,8,8] x) => (float[N,4,6,6] y) {
        a = Conv (x, w) y = Relu (a) }"""
    model = model_of(text, w=rng.normal(size=(4, 4, 3, 3)).astype(np.float32))
    feeds = [rng.normal(size=(2, 4, 8, 8)).astype(np.float32) for _ in range(4)]
    mapping = recipe(MinMaxObserver, qscheme=scheme, qdtype=dtype)
    result = quantize(model, feeds, format, qconfig_mapping=mapping)
    assert "Conv" in quantized(result)
    assert result(feeds[0]).min() == 0 and sqnr(model, result, feeds) > 25


@FORMATS
def test_27_names_stay_unique(format: str, rng: np.random.Generator) -> None:
    text = """net (float[N,4,8,8] x) => (float[N,4,6,6] a, float[N,4,6,6] b, float[N,4,8,8] c,
                                          float[N,4,12,12] p) {
        r = Conv (x, k) a = Conv (r, w, bias) b = Conv (r, w, bias)
        c = Conv <pads = [1,1,1,1]> (r, w, bias) q = Pad (r, one) p = Pad (q, one) }"""
    model = model_of(
        text, k=rng.normal(size=(4, 4, 1, 1)).astype(np.float32),
        w=rng.normal(size=(4, 4, 3, 3)).astype(np.float32), bias=np.ones(4, np.float32),
        one=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    )  # fmt: skip
    feeds = [rng.normal(size=(2, 4, 8, 8)).astype(np.float32) for _ in range(4)]
    result = quantize(model, feeds, format)
    names = [node.name for node in nodes(result.model)]
    assert len(names) == len(set(names)) and quantized(result).count("Conv") == 4
    truth = lucid_fx.trace(model)(feeds[0])
    for wanted, given in zip(truth, result(feeds[0]), strict=True):
        assert np.abs(wanted - given).max() < 0.05 * np.abs(wanted).max()


def test_28_exclusion_by_name(rng: np.random.Generator) -> None:
    model = model_of("net (float[N,8] x) => (float[N,4] y) { y = Gemm (x, w) }",
                     w=rng.normal(size=(8, 4)).astype(np.float32))  # fmt: skip
    model.graph.node[0].name = "fc"
    feeds = [rng.normal(size=(2, 8)).astype(np.float32)]
    mapping = get_default_qconfig_mapping().set_module_name("fc", None)
    assert quantized(quantize(model, feeds, qconfig_mapping=mapping)) == []
    mapping = get_default_qconfig_mapping().set_module_name("fcc", None)
    with pytest.raises(ConfigError, match=r"'fcc'.*'fc'"):
        quantize(model, feeds, qconfig_mapping=mapping)


IF = """net (bool c, float[N,4,8,8] x) => (float[N,4,6,6] y) {
    y = If (c) <then_branch = yes () => (float[N,4,6,6] o) { t = Conv (x, w) o = Relu (t) },
                else_branch = no () => (float[N,4,6,6] o2) { o2 = Conv (x, v) }> }"""


@FORMATS
def test_30_branches_with_captured_weights(format: str, rng: np.random.Generator) -> None:
    weights = {k: rng.normal(size=(4, 4, 3, 3)).astype(np.float32) for k in "wv"}
    model = model_of(IF, **weights)
    feeds = [
        (np.array(k % 2 == 0), rng.normal(size=(2, 4, 8, 8)).astype(np.float32)) for k in range(4)
    ]
    result = quantize(model, feeds, format)
    assert quantized(result).count("Conv") == 2 and sqnr(model, result, feeds) > 25


@FORMATS
def test_30_a_branch_that_never_ran_stays_float(format: str, rng: np.random.Generator) -> None:
    weights = {k: rng.normal(size=(4, 4, 3, 3)).astype(np.float32) for k in "wv"}
    model = model_of(IF, **weights)
    feeds = [(np.array(True), rng.normal(size=(2, 4, 8, 8)).astype(np.float32)) for _ in range(4)]
    result = quantize(model, feeds, format)
    entry = result.ledger["Conv_o2"]
    assert entry.status == "float" and "saw no finite value of it" in entry.reason
    assert "'o2'" in entry.reason
    other = [(np.array(False), feeds[0][1])]
    assert sqnr(model, result, other) > 20  # the input itself may be on codes


@FORMATS
def test_32_one_weight_for_inputs_of_unlike_ranges(format: str, rng: np.random.Generator) -> None:
    text = """net (float[N,4,8,8] x, float[N,4,8,8] z) => (float[N,4,8,8] y) {
        a = Conv (x, w, b) s = Mul (z, big) c = Conv (s, w, b) t = Div (c, big) y = Add (a, t) }"""
    model = model_of(
        text, w=rng.normal(size=(4, 4, 1, 1)).astype(np.float32),
        b=rng.normal(size=4).astype(np.float32), big=np.float32(100),
    )  # fmt: skip
    samples = rng.normal(size=(4, 2, 2, 4, 8, 8)).astype(np.float32)
    feeds = [tuple(sample) for sample in samples]
    result = quantize(model, feeds, format)
    assert quantized(result).count("Conv") == 2 and sqnr(model, result, feeds) > 25


@FORMATS
@pytest.mark.parametrize("how", ["Constant", "Identity", "Transpose"])
def test_34_the_file_shrinks(how: str, format: str, rng: np.random.Generator) -> None:
    made = {"Constant": "", "Identity": "v = Identity (w)", "Transpose": "v = Transpose (w)"}[how]
    text = f"net (float[N,128] x) => (float[N,128] y) {{ {made} y = MatMul (x, v) }}"
    weight = rng.normal(size=(128, 128)).astype(np.float32)
    model = model_of(text, **({} if how == "Constant" else {"w": weight}))
    if how == "Constant":
        tensor = numpy_helper.from_array(weight, "v")
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["v"], value=tensor))
    result = quantize(model, [rng.normal(size=(4, 128)).astype(np.float32)], format)
    assert "MatMul" in quantized(result)
    assert len(result.to_bytes()) < 0.4 * model.ByteSize()


def test_36_an_unknown_op_in_the_middle_stops_no_type(rng: np.random.Generator) -> None:
    text = """net (float[N,16] x) => (float[N,8] y) {
        t = com.microsoft.FusedMatMul <alpha = 0.5> (x, w) y = MatMul (t, v) }"""
    header = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    model = parser.parse_model(header + text)
    for name, shape in (("w", (16, 16)), ("v", (16, 8))):
        array = rng.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    feeds = [rng.normal(size=(4, 16)).astype(np.float32) for _ in range(4)]
    result = quantize(model, feeds)
    assert quantized(result) == ["MatMul"] and sqnr(model, result, feeds) > 30


@FORMATS
def test_39_the_channel_axis_of_each_op(format: str, rng: np.random.Generator) -> None:
    """One channel a hundred times the others: a slip of the axis would ruin the small ones."""
    text = """net (float[N,4,6,6] x) => (float[N,8] y, float[N,5,12,12] z) {
        c = Conv (x, k) g = GlobalAveragePool (c) f = Flatten (g) y = Gemm <transB = 1> (f, w)
        z = ConvTranspose <strides = [2,2], kernel_shape = [2,2]> (c, u) }"""
    weights = {
        "k": rng.normal(size=(4, 4, 1, 1)), "w": rng.normal(size=(8, 4)),
        "u": rng.normal(size=(4, 5, 2, 2)),
    }  # fmt: skip
    weights["w"][0] *= 100
    weights["u"][:, 0] *= 100
    model = model_of(text, **{k: v.astype(np.float32) for k, v in weights.items()})
    feeds = [rng.normal(size=(3, 4, 6, 6)).astype(np.float32) + 1 for _ in range(4)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LucidFxWarning)
        result = quantize(model, feeds, format)
    for wanted, given in zip(lucid_fx.trace(model)(feeds[0]), result(feeds[0]), strict=True):
        assert np.abs(wanted - given)[:, 1:].max() < 0.5 * np.abs(wanted[:, 1:]).max()


@FORMATS
@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
def test_39_recurrent_ops_are_told_of(op_type: str, format: str, rng: np.random.Generator) -> None:
    gates = {"LSTM": 4, "GRU": 3}[op_type]
    body = f"y = {op_type} <hidden_size = 8> (x, w, r)"
    text = f"net (float[5,N,6] x) => (float[5,1,N,8] y) {{ {body} }}"
    model = model_of(
        text, w=rng.normal(size=(1, gates * 8, 6)).astype(np.float32),
        r=rng.normal(size=(1, gates * 8, 8)).astype(np.float32),
    )  # fmt: skip
    feeds = [rng.normal(size=(5, 2, 6)).astype(np.float32) for _ in range(4)]
    result = quantize(model, feeds, format)
    (entry,) = result.ledger
    wanted = {"LSTM": ("quantized", "run time"), "GRU": ("float", "no integer GRU")}[op_type]
    assert entry.status == wanted[0] and wanted[1] in entry.reason
    assert sqnr(model, result, feeds) > 25
