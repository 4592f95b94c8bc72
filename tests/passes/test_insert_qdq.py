"""Q/DQ pairs around integer nodes; on numbers that lie on their grids the results are equal."""

import numpy as np
from checks import check_pass, check_unchanged, model_from, ops

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.walk import constant, nodes
from lucid_fx.passes.insert_qdq import InsertQDQ
from lucid_fx.quantization import (
    FixedQParamsObserver,
    QParams,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    quint8,
)
from lucid_fx.target import TARGETS


def grid(scale: float, zero_point: int) -> QParams:
    return QParams(np.float32(scale), np.float32(zero_point), per_tensor_affine, quint8)


WHOLE = FixedQParamsObserver.with_args(
    scale=1.0, zero_point=0, qscheme=per_tensor_symmetric, qdtype=qint8
)
"""A weight grid on which whole numbers are exact."""
EIGHTHS = np.arange(-9, 9, dtype=np.float32) / 8


def test_conv_with_weight_bias_and_output() -> None:
    check_pass(
        """g (float[1,1,3,6] x) => (float[1,2,3,6] y)
            <float[2,1,1,1] w = {1, -2}, float[2] b = {0.5, 1}> { [c] y = Conv (x, w, b) }""",
        InsertQDQ(frozenset("c"), {"x": grid(1 / 8, 128), "y": grid(1 / 8, 128)}, {"c": WHOLE}),
        """g (float[1,1,3,6] x) => (float[1,2,3,6] y)
            <float x_scale = {0.125}, uint8 x_zero_point = {128},
             int8[2,1,1,1] w_quantized = {1, -2}, float w_scale = {1}, int8 w_zero_point = {0},
             int32[2] b_quantized = {4, 8}, float c_b_scale = {0.125}, int32 c_b_zero = {0},
             float y_scale = {0.125}, uint8 y_zero_point = {128}> {
            x_codes = QuantizeLinear (x, x_scale, x_zero_point)
            w_real = DequantizeLinear (w_quantized, w_scale, w_zero_point)
            b_real = DequantizeLinear (b_quantized, c_b_scale, c_b_zero)
            x_real = DequantizeLinear (x_codes, x_scale, x_zero_point)
            [c] y_real_1 = Conv (x_real, w_real, b_real)
            y_codes = QuantizeLinear (y_real_1, y_scale, y_zero_point)
            y = DequantizeLinear (y_codes, y_scale, y_zero_point) }""",
        feeds={"x": EIGHTHS.reshape(1, 1, 3, 6)},
        exact=True, once=True,
    )  # fmt: skip


def test_weights_are_coded_by_output_channel() -> None:
    """The default recipe; largest weights lose half a code, since the grid ends at 127.5 steps."""
    check_pass(
        """g (float[3,6] x) => (float[3,2] y)
            <float[6,2] w = {127.5, 255, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0}> {
            [m] y = MatMul (x, w) }""",
        InsertQDQ(frozenset("m"), {"x": grid(1 / 8, 128), "y": grid(4, 128)}),
        """g (float[3,6] x) => (float[3,2] y)
            <float x_scale = {0.125}, uint8 x_zero_point = {128},
             int8[6,2] w_quantized = {127, 127, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0},
             float[2] w_scale = {1, 2}, int8[2] w_zero_point = {0, 0},
             float y_scale = {4}, uint8 y_zero_point = {128}> {
            x_codes = QuantizeLinear (x, x_scale, x_zero_point)
            w_real = DequantizeLinear <axis = 1> (w_quantized, w_scale, w_zero_point)
            x_real = DequantizeLinear (x_codes, x_scale, x_zero_point)
            [m] y_real_1 = MatMul (x_real, w_real)
            y_codes = QuantizeLinear (y_real_1, y_scale, y_zero_point)
            y = DequantizeLinear (y_codes, y_scale, y_zero_point) }""",
        feeds={"x": EIGHTHS.reshape(3, 6)},
        bound=9 / 8 * 2 / 2 + 4 / 2,  # half a weight code at the largest input, half a step of y
        once=True,
    )


def test_a_constant_operand_and_a_float_reader() -> None:
    """What is made on codes is read from its codes by everybody, float nodes included."""
    check_pass(
        """g (float[4] x) => (float[4] y) <float[4] k = {0, 1, 2, 255}> {
            [a] t = Add (x, k)  [n] y = Neg (t) }""",
        InsertQDQ(frozenset("a"), {"x": grid(1, 128), "t": grid(1, 0)}),
        """g (float[4] x) => (float[4] y)
            <float x_scale = {1}, uint8 x_zero_point = {128}, float t_scale = {1},
             uint8 t_zero_point = {0}, uint8[4] k_quantized = {0, 1, 2, 255}, float k_scale = {1},
             uint8 k_zero_point = {0}> {
            x_codes = QuantizeLinear (x, x_scale, x_zero_point)
            k_real = DequantizeLinear (k_quantized, k_scale, k_zero_point)
            x_real = DequantizeLinear (x_codes, x_scale, x_zero_point)
            [a] t = Add (x_real, k_real)
            t_codes = QuantizeLinear (t, t_scale, t_zero_point)
            t_real = DequantizeLinear (t_codes, t_scale, t_zero_point)
            [n] y = Neg (t_real) }""",
        feeds={"x": np.array([3, 2, 1, 0], np.float32)},
        exact=True, once=True,
    )  # fmt: skip


def test_one_value_with_three_readers_is_encoded_once() -> None:
    """Seen elsewhere: one tensor with several quantized consumers gave two nodes of one name."""
    model = model_from(
        """g (float[4] x) => (float[4] y, float[4] z) {
            [a] t = Add (x, x)  [b] y = Add (t, x)  [c] z = Relu (x) }"""
    )
    grids = {name: grid(1, 128) for name in ("x", "t", "y", "z")}
    InsertQDQ(frozenset("abc"), grids).run(model)
    coded = [n.inputs[0].name for n in nodes(model) if n.op_type == "QuantizeLinear"]  # type: ignore[union-attr]
    assert coded.count("x") == 1
    assert ops(model).count("DequantizeLinear") == 4 + 1 + 2  # x four times, t once, y and z


def test_a_weight_shared_by_two_convs_of_different_input_scales() -> None:
    """The codes are shared, the bias has a grid for each Conv."""
    model = model_from(
        """g (float[1,1,2,2] x, float[1,1,2,2] u) => (float[1,1,2,2] y, float[1,1,2,2] z)
            <float[1,1,1,1] w = {1}, float[1] b = {2}> {
            [c] y = Conv (x, w, b)  [d] z = Conv (u, w, b) }"""
    )
    grids = {"x": grid(1 / 8, 128), "u": grid(1 / 2, 0), "y": grid(1, 0), "z": grid(1, 0)}
    InsertQDQ(frozenset("cd"), grids, {"c": WHOLE, "d": WHOLE}).run(model)
    biases = [
        constant(value).tolist()  # type: ignore[union-attr]
        for name, value in model.graph.initializers.items()
        if name.startswith("b_quantized")
    ]
    assert biases == [[16], [4]]
    weights = [name for name in model.graph.initializers if name.startswith("w_quantized")]
    assert weights == ["w_quantized"]


def test_gemm_loses_alpha_and_beta_to_its_constants() -> None:
    check_pass(
        """g (float[3,6] x) => (float[3,1] y) <float[6,1] w = {1, 1, 0, 0, 0, 0}, float b = {0.5}> {
            [g] y = Gemm <alpha = 2.0, beta = 3.0> (x, w, b) }""",
        InsertQDQ(frozenset("g"), {"x": grid(1 / 8, 128), "y": grid(1 / 8, 128)}, {"g": WHOLE}),
        """g (float[3,6] x) => (float[3,1] y)
            <float x_scale = {0.125}, uint8 x_zero_point = {128},
             int8[6,1] w_quantized = {2, 2, 0, 0, 0, 0}, float w_scale = {1},
             int8 w_zero_point = {0}, int32[1] b_quantized = {12}, float g_b_scale = {0.125},
             int32 g_b_zero = {0}, float y_scale = {0.125}, uint8 y_zero_point = {128}> {
            x_codes = QuantizeLinear (x, x_scale, x_zero_point)
            w_real = DequantizeLinear (w_quantized, w_scale, w_zero_point)
            b_real = DequantizeLinear (b_quantized, g_b_scale, g_b_zero)
            x_real = DequantizeLinear (x_codes, x_scale, x_zero_point)
            [g] y_real_1 = Gemm (x_real, w_real, b_real)
            y_codes = QuantizeLinear (y_real_1, y_scale, y_zero_point)
            y = DequantizeLinear (y_codes, y_scale, y_zero_point) }""",
        feeds={"x": EIGHTHS.reshape(3, 6)},
        exact=True, once=True,
    )  # fmt: skip


def test_before_opset_13_the_ops_of_onnxruntime_stand_in() -> None:
    """ONNX's own Q and DQ have no axis there."""
    model = model_from(
        """<ir_version: 7, opset_import: ["" : 12]>
        g (float[1,1,2,2] x) => (float[1,2,2,2] y) <float[2,1,1,1] w = {1, 2}> {
            [c] y = Conv (x, w) }"""
    )
    InsertQDQ(frozenset("c"), {"x": grid(1 / 8, 128), "y": grid(1 / 8, 128)}).run(model)
    assert {n.domain for n in nodes(model) if "Linear" in n.op_type} == {"com.microsoft"}


def test_repairs_are_in_the_ledger_by_node() -> None:
    text = """g (float[3,4] x) => (float[3,1] y) <float[4,1] w = {1, 1, 1, 1}> {
        [m] y = MatMul (x, w) }"""
    grids = {"x": grid(1 / 8, 128), "y": grid(1 / 8, 128)}
    safe, risky = model_from(text), model_from(text)
    InsertQDQ(frozenset("m"), grids, target=TARGETS["cpu-avx512vnni"]).run(safe)
    InsertQDQ(frozenset("m"), grids, target=TARGETS["cpu-avx2"]).run(risky)
    assert ledger_of(safe).notes == []
    assert len(ledger_of(risky).notes) == 1 and "m: 1 of 1 channels" in ledger_of(risky).notes[0]


def test_a_node_that_was_not_chosen_stays() -> None:
    check_unchanged(
        "g (float[4] x) => (float[4] y) { [r] y = Relu (x) }",
        InsertQDQ(frozenset({"another"}), {"x": grid(1, 0), "y": grid(1, 0)}),
    )
