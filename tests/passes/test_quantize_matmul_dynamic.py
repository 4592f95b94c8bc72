"""Matrix products whose activations are quantized at run time.

The feed spans exactly 255 steps and the weights are multiples of a half: nothing is rounded.
"""

import numpy as np
import pytest
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.quantize_matmul_dynamic import QuantizeMatMulDynamic
from lucid_fx.quantization import FixedQParamsObserver, per_tensor_symmetric, qint8

HALVES = FixedQParamsObserver.with_args(
    scale=0.5, zero_point=0, qscheme=per_tensor_symmetric, qdtype=qint8
)
FEED = {"x": np.array([[0, 255], [1, 2], [3, 4]], np.float32) / 16}
WEIGHT = "float[2,2] w = {1, 2, -3, 0.5}, float[2] b = {1, 2}"
CODED = "int8[2,2] w_quantized = {2, 4, -6, 1}, float w_scale = {0.5}, int8 w_zero_point = {0}"
PAIR = f"""g (float[3,2] x) => (float[3,2] y) <{WEIGHT}> {{
    [m] t = MatMul (x, w)  [a] y = Add (t, b) }}"""


def dynamic(*, portable: bool = False) -> QuantizeMatMulDynamic:
    return QuantizeMatMulDynamic(frozenset("m"), {"m": HALVES}, portable=portable)


def test_matmul_and_its_bias_become_one_node() -> None:
    model = check_pass(
        PAIR,
        dynamic(),
        f"""g (float[3,2] x) => (float[3,2] y) <{CODED}, float[2] b = {{1, 2}}> {{
            y = com.microsoft.DynamicQuantizeMatMul
                (x, w_quantized, w_scale, w_zero_point, b) }}""",
        feeds=FEED,
    )
    assert [ledger_of(model)[name].status for name in "ma"] == ["quantized", "quantized"]


def test_the_portable_form() -> None:
    check_pass(
        PAIR,
        dynamic(portable=True),
        f"""g (float[3,2] x) => (float[3,2] y) <{CODED}, float[2] b = {{1, 2}}> {{
            a_DynamicQuantizeLinear_out, a_DynamicQuantizeLinear_out1, a_DynamicQuantizeLinear_out2
                = DynamicQuantizeLinear (x)
            a_MatMulInteger_out = MatMulInteger (a_DynamicQuantizeLinear_out, w_quantized,
                a_DynamicQuantizeLinear_out2, w_zero_point)
            a_Cast_out = Cast <to = 1> (a_MatMulInteger_out)
            a_Mul_out = Mul (a_DynamicQuantizeLinear_out1, w_scale)
            a_Mul_1_out = Mul (a_Cast_out, a_Mul_out)
            y = Add (a_Mul_1_out, b) }}""",
        feeds=FEED,
    )


def test_gemm_with_a_transposed_weight_and_its_factors() -> None:
    check_pass(
        f"""g (float[3,2] x) => (float[3,2] y) <{WEIGHT}> {{
            [m] y = Gemm <transB = 1, alpha = 2.0, beta = 3.0> (x, w, b) }}""",
        dynamic(),
        """g (float[3,2] x) => (float[3,2] y)
            <int8[2,2] w_quantized = {4, -12, 8, 2}, float w_scale = {0.5}, int8 w_zero_point = {0},
             float[2] b_m = {3, 6}> {
            y = com.microsoft.DynamicQuantizeMatMul
                (x, w_quantized, w_scale, w_zero_point, b_m) }""",
        feeds=FEED,
    )


@pytest.mark.parametrize("bias", ["float[3,2] k = {1, 2, 3, 4, 5, 6}", "float[1] k = {1}"])
def test_an_addition_that_is_no_bias_stays_behind(bias: str) -> None:
    declared = bias.split(" = ", maxsplit=1)[0]
    check_pass(
        f"""g (float[3,2] x) => (float[3,2] y) <{WEIGHT}, {bias}> {{
            [m] t = MatMul (x, w)  [a] y = Add (t, k) }}""",
        dynamic(),
        f"""g (float[3,2] x) => (float[3,2] y) <{CODED}, {declared}> {{
            t = com.microsoft.DynamicQuantizeMatMul (x, w_quantized, w_scale, w_zero_point)
            [a] y = Add (t, k) }}""",
        feeds=FEED,
    )


def test_a_node_that_was_not_chosen_stays() -> None:
    check_unchanged(PAIR, QuantizeMatMulDynamic(frozenset({"another"})))
