"""Products whose weights lie on codes: models of big matrices that should be small and read fast.

The weights are whole numbers from -8 to 7 with a -8 in every block, which the codes hold exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from checks import check_pass, check_unchanged, model_from

from lucid_fx.errors import ModelError
from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.verify import verify
from lucid_fx.ir.walk import constant, nodes
from lucid_fx.native.library import load
from lucid_fx.passes.eliminate_dead import EliminateDead
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.passes.quantize_weights import QuantizeWeights, quantize_stored
from lucid_fx.passes.weight_sites import StoredWeight
from lucid_fx.quantization.block import QuantValue, ScaleDtype
from lucid_fx.quantization.weight_only import QuantizedMatrix, WeightConfig, round_to_nearest
from lucid_fx.runtime.session import Session

K, N = 96, 48
PLAIN = WeightConfig(compute="float32")
HEADER = '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>\n'
CODES = "uint8[3,768] w_codes, float16[3,3,16] w_scales"
NBITS = "uint8[48,3,16] w_codes, float[48,3] w_scales"
ATTRIBUTES = 'K = 96, N = 48, block_size = 32, value = "Q4F", compute = "float32", layout = 1'
NBITS_ATTRIBUTES = "K = 96, N = 48, block_size = 32, bits = 4, accuracy_level = 1"

native = pytest.mark.skipif(load() is None, reason="packing is native")


def whole(k: int = K, n: int = N, seed: int = 0) -> np.ndarray:
    w = np.random.default_rng(seed).integers(-8, 8, (k, n)).astype(np.float32)
    w[::16] = -8
    return w


def text(array: np.ndarray) -> str:
    return "{" + ", ".join(f"{x:g}" for x in array.ravel()) + "}"


def weight(name: str = "w", array: np.ndarray | None = None, kind: str = "float") -> str:
    array = whole() if array is None else array
    return f"{kind}[{array.shape[0]},{array.shape[1]}] {name} = {text(array)}"


B = f"float[{N}] b = {text(np.arange(N))}"


def planned(*names: str, op: Any = "matmulint4", config: WeightConfig = PLAIN) -> QuantizeWeights:
    return QuantizeWeights(dict.fromkeys(names, config), op)


def graph(body: str, stored: str, result: str = "float[3,48] y", x: str = "float[3,96] x") -> str:
    return f"{HEADER}g ({x}) => ({result}) <{stored}> {{ {body} }}"


@native
def test_matmul_and_its_bias_become_one_node() -> None:
    model = check_pass(
        graph("[m] t = MatMul (x, w) [a] y = Add (b, t)", f"{weight()}, {B}"),
        planned("m"),
        graph(
            f"y = lucid_fx.MatMulInt4 <{ATTRIBUTES}> (x, w_codes, w_scales, , a_bias)",
            f"{CODES}, float[{N}] a_bias",
        ),
    )
    ledger = ledger_of(model)
    assert [ledger[name].status for name in "ma"] == ["quantized", "quantized"]
    assert ledger["m"].reason == "weights on Q4F, block 32, F16 scales, rtn"
    assert {n.metadata_props["lucid_fx.origin"] for n in nodes(model)} == {"m\na"}


def test_the_form_that_any_onnxruntime_runs() -> None:
    check_pass(
        graph("[m] t = MatMul (x, w) [a] y = Add (t, b)", f"{weight()}, {B}"),
        planned("m", op="matmulnbits"),
        graph(
            f"y = com.microsoft.MatMulNBits <{NBITS_ATTRIBUTES}>"
            " (x, w_codes, w_scales, , , a_bias)",
            f"{NBITS}, float[{N}] a_bias",
        ),
    )


@pytest.mark.parametrize("op", [pytest.param("matmulint4", marks=native), "matmulnbits"])
def test_zero_points_and_scales_of_eight_bits(op: str) -> None:
    """The global scale is an attribute of one op, and in the scales of the other."""
    w = np.random.default_rng(0).standard_normal((K, N)).astype(np.float32)
    config = WeightConfig(
        zero_points=True, scale=ScaleDtype.UE4M3, compute="float32", block_size=16
    )
    model = model_from(graph("[m] y = MatMul (x, w)", weight(array=w)))
    before = model_from(
        graph("[m] y = MatMul (x, w)", weight(array=round_to_nearest(w, config).dequantize()))
    )
    run_pipeline(model, (planned("m", op=op, config=config), EliminateDead()))
    x = np.random.default_rng(1).standard_normal((3, K)).astype(np.float32)
    (node,) = model.graph
    assert ("global_scale" in node.attributes) == (op == "matmulint4")
    (found,), (wanted,) = (Session(m).run({"x": x}) for m in (model, before))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=32 * 2.0**-23 * np.abs(wanted).max())


@native
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("c", [f"float[1,{N}] c = {text(np.ones(N))}", "float c = {1}"])
def test_gemm_with_a_bias_for_each_column(transposed: int, c: str) -> None:
    array = whole().T if transposed else whole()
    check_pass(
        graph(
            f"[m] y = Gemm <transB = {transposed}, beta = 3.0> (x, w, c)",
            f"{weight(array=array)}, {c}",
        ),
        planned("m"),
        graph(
            f"y = lucid_fx.MatMulInt4 <{ATTRIBUTES}> (x, w_codes, w_scales, , m_bias)",
            f"{CODES}, float[{N}] m_bias = {text(np.full(N, 3.0))}",
        ),
    )


@native
def test_gemm_that_adds_something_else() -> None:
    body, c = "[m] y = Gemm (x, w, c)", f"float[3,1] c = {text(np.arange(3))}"
    check_pass(
        graph(body, f"{weight()}, {c}"),
        planned("m"),
        graph(
            f"m_MatMulInt4_out = lucid_fx.MatMulInt4 <{ATTRIBUTES}> (x, w_codes, w_scales)"
            " y = Add (m_MatMulInt4_out, c)",
            f"{CODES}, {c}",
        ),
    )


@native
def test_an_add_that_others_see_or_that_broadcasts_stays() -> None:
    body = "[m] y = MatMul (x, w) z = Add (y, b)"
    ours = f"lucid_fx.MatMulInt4 <{ATTRIBUTES}> (x, w_codes, w_scales)"
    check_pass(
        graph(body, f"{weight()}, {B}", "float[3,48] y, float[3,48] z"),
        planned("m"),
        graph(f"y = {ours} z = Add (y, b)", f"{CODES}, {B}", "float[3,48] y, float[3,48] z"),
    )
    c = f"float[2,1,{N}] c = {text(np.ones(2 * N))}"
    check_pass(
        graph("[m] t = MatMul (x, w) y = Add (t, c)", f"{weight()}, {c}", "float[2,3,48] y"),
        planned("m"),
        graph(f"t = {ours} y = Add (t, c)", f"{CODES}, {c}", "float[2,3,48] y"),
    )


@native
def test_a_shared_weight_is_stored_once() -> None:
    ours = f"lucid_fx.MatMulInt4 <{ATTRIBUTES}>"
    check_pass(
        graph("[m] t = MatMul (x, w) s = Neg (x) [o] u = MatMul (s, w) y = Sub (t, u)", weight()),
        planned("m", "o"),
        graph(
            f"t = {ours} (x, w_codes, w_scales) s = Neg (x) u = {ours} (s, w_codes, w_scales)"
            " y = Sub (t, u)",
            CODES,
        ),
    )


@native
def test_a_weight_behind_a_transpose_is_read_through_it() -> None:
    model = check_pass(
        graph("v = Transpose (w) [m] y = MatMul (x, v)", weight(array=whole().T)),
        planned("m"),
        graph(
            f"v = Transpose (w) y = lucid_fx.MatMulInt4 <{ATTRIBUTES}> (x, w_codes, w_scales)",
            f"{weight(array=whole().T)}, {CODES}",
        ),
    )
    run_pipeline(model, (EliminateDead(),))
    assert sorted(model.graph.initializers) == ["w_codes", "w_scales"]


@native
def test_products_in_a_body() -> None:
    model = model_from(
        f"""{HEADER}g (bool c, float[3,96] x) => (float[3,48] y) <{weight()}> {{
        y = If (c) <then_branch = t () => (float[3,48] a) {{ [m] a = MatMul (x, w) }},
                    else_branch = e () => (float[3,48] b) {{ n = Neg (x) b = MatMul (n, w) }}> }}"""
    )
    names = [str(n.name) for n in nodes(model) if n.op_type == "MatMul"]
    run_pipeline(model, (planned(*names), EliminateDead()))
    assert [n.op_type for n in nodes(model)].count("MatMulInt4") == 2
    assert sorted(model.graph.initializers) == ["w_codes", "w_scales"]
    x = np.random.default_rng(0).standard_normal((3, K)).astype(np.float32)
    (y,) = Session(model).run({"c": np.asarray(True), "x": x})
    np.testing.assert_allclose(y, x @ whole(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", [pytest.param("matmulint4", marks=native), "matmulnbits"])
@pytest.mark.parametrize("scale", [ScaleDtype.F16, ScaleDtype.F32])
def test_half_precision_keeps_its_type(op: str, scale: ScaleDtype) -> None:
    b = f"float16[{N}] b = {text(np.arange(N))}"
    body = "[m] t = MatMul (x, w) y = Add (t, b)"
    source = graph(body, f"{weight(kind='float16')}, {b}", "float16[3,48] y", "float16[3,96] x")
    model = model_from(source)
    for name, array in (("w", whole()), ("b", np.arange(N))):  # the text parser reads raw bits
        tensor = ir.tensor(array.astype(np.float16), name=name)
        model.graph.initializers[name].const_value = tensor
    config = WeightConfig(scale=scale, compute="float32")
    run_pipeline(model, (planned("m", op=op, config=config), EliminateDead()))
    casts = [n.op_type for n in nodes(model)].count("Cast")
    assert casts == (2 if op == "matmulnbits" and scale is ScaleDtype.F32 else 0)
    x = np.random.default_rng(0).integers(-2, 3, (3, K)).astype(np.float16)
    (y,) = Session(model).run({"x": x})
    wanted = x.astype(np.float64) @ whole() + np.arange(N)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, wanted, rtol=2.0**-10, atol=2.0**-10 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("body", "stored", "reason"),
    [
        ("[m] y = MatMul (x, x2)", "", "both of its operands are computed"),
        ("[m] y = MatMul (w, x2)", weight(), "its constant is on the left"),
        (
            "[m] t = MatMul (x, w) e = Gather (w, i) y = Sub (t, e)",
            f"{weight()}, int64[3] i = {{1, 2, 3}}",
            "its weight 'w' stays shared with Gather 'Gather_e'",
        ),
        (
            "n = Transpose (w) [m] t = MatMul (x, n) e = Gather (w, i) y = Concat <axis=1> (t, e)",
            f"{weight(array=whole().T)}, int64[3] i = {{1, 2, 3}}",
            "its weight 'w' stays shared with Gather 'Gather_e'",
        ),
        (
            "[m] t = MatMul (x, w) [o] u = MatMul (x, w) y = Sub (t, u)",
            weight(),
            "its weight 'w' stays shared with MatMul 'o'",
        ),
        ("[m] y = MatMul (x, w) z = Identity (w)", weight(), "stays shared with Identity"),
        ("[m] y = MatMul (x3, w)", weight(array=whole(256, 15)), "its weight of 256 x 15 is small"),
        ("[m] y = MatMul (x4, w)", weight(array=whole(32, 64)), "its weight of 32 x 64 is small"),
        ("[m] y = MatMul (v, w)", weight(), "it multiplies a vector"),
        ("[m] y = Gemm <alpha = 0.5> (x, w)", weight(), "it scales the product by 0.5"),
        ("[m] y = Gemm <beta = 0.5> (x, w, c)", weight(), "it scales what it adds by 0.5"),
        ("[m] y = Gemm <transA = 1> (x5, w)", weight(), "it transposes its activations"),
        ("d = Cast <to = 11> (x) [m] y = MatMul (d, w)", weight(kind="double"), "it computes in"),
        (
            "[m] y = MatMul (x, w)",
            f"float[1,{K},{N}] w = {text(whole())}",
            "its weight 'w' has 3 axes, not 2",
        ),
    ],
)
def test_refusals(body: str, stored: str, reason: str) -> None:
    inputs = (
        "float[3,96] x, float[96,3] x2, float[3,256] x3, float[3,32] x4, float[96,3] x5,"
        " float[96] v, float[3,48] c"
    )
    kind = "double[P,Q]" if "double" in stored else "float[P,Q]"
    shape = "float[Q]" if "(v, w)" in body else "float[1,P,Q]" if "[1," in stored else kind
    more = ", float[96,48] z" if "z =" in body else ""
    source = f"{HEADER}g ({inputs}) => ({shape} y{more}) <{stored}> {{ {body} }}"
    model = check_unchanged(source, planned("m"))
    assert reason in ledger_of(model)["m"].reason
    assert ledger_of(model)["m"].status == "float"


def test_what_is_not_planned_stays_and_says_so() -> None:
    model = check_unchanged(
        graph("[m] t = MatMul (x, w) [r] y = Relu (t)", weight()), QuantizeWeights()
    )
    assert ledger_of(model)["m"].reason == "the configuration leaves it in float"
    assert ledger_of(model)["r"].reason == "it is no product with a weight"


def test_numbers_are_computed_when_they_are_read_and_once_for_all_operands() -> None:
    seen: list[str] = []

    def quantizer(weight: StoredWeight, config: WeightConfig) -> QuantizedMatrix:
        seen.append(weight.name)
        return quantize_stored(weight, config)

    model = model_from(graph("[m] t = MatMul (x, w) y = Relu (t)", weight()))
    config = WeightConfig(QuantValue.Q2F, zero_points=True)
    QuantizeWeights({"m": config}, "matmulnbits", quantizer).run(model)
    verify(model)
    assert seen == []
    for name in ("w_codes", "w_scales", "w_zero_points"):
        assert constant(model.graph.initializers[name]) is not None
    assert seen == ["w"]


@pytest.mark.parametrize("scale", [ScaleDtype.F16, ScaleDtype.UE4M3])
def test_a_weight_that_is_not_finite_is_named(scale: ScaleDtype) -> None:
    model = model_from(graph("[m] y = MatMul (x, w)", weight()))
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    bad = tensor.numpy().copy()
    bad[5, 5] = np.nan
    model.graph.initializers["w"].const_value = ir.tensor(bad, name="w")
    with pytest.raises(ModelError, match=r"a weight is NaN or infinite \(tensor 'w'\)"):
        planned("m", op="matmulnbits", config=WeightConfig(scale=scale)).run(model)
        constant(model.graph.initializers["w_codes"])
