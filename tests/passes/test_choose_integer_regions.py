"""Which nodes compute on codes: by rule, by price, and with a reason for the rest."""

from __future__ import annotations

from checks import model_from

from lucid_fx.passes.choose_integer_regions import Plan, choose_integer_regions
from lucid_fx.target import TARGETS

VNNI = TARGETS["cpu-avx512vnni"]
IMAGE = "float[1,4,16,16]"


def plan(text: str, **excluded: str) -> Plan:
    return choose_integer_regions(model_from(text), VNNI, excluded)


def ones(name: str, shape: str, count: int) -> str:
    return f"float[{shape}] {name} = {{{', '.join(['1'] * count)}}}"


W = ", ".join([ones("w", "4,4,3,3", 144), ones("m", "4,4", 16), ones("b", "4", 4)])
SAME = "pads = [1,1,1,1]"


def test_a_conv_with_a_constant_weight_is_always_integer() -> None:
    found = plan(f"g ({IMAGE} x) => ({IMAGE} y) <{W}> {{ [c] y = Conv <{SAME}> (x, w) }}")
    assert found.integer == {"c"} and set(found.observed) == {"x", "y"}


def test_a_conv_with_a_computed_weight_stays_with_its_reason() -> None:
    found = plan(
        f"g ({IMAGE} x, float[4,4,3,3] v) => ({IMAGE} y) {{ [c] y = Conv <{SAME}> (x, v) }}"
    )
    assert not found.integer and found.reasons == {"c": "its weight is computed at run time"}


def test_what_the_configuration_excludes_stays_with_that_reason() -> None:
    found = plan(
        f"g ({IMAGE} x) => ({IMAGE} y) <{W}> {{ [c] y = Conv <{SAME}> (x, w) }}",
        c="the configuration leaves it in float",
    )
    assert not found.integer and found.reasons["c"] == "the configuration leaves it in float"


def test_an_op_between_float_neighbours_stays_float() -> None:
    found = plan(f"g ({IMAGE} x) => ({IMAGE} y) {{ [r] t = Relu (x)  [s] y = Softmax (t) }}")
    assert not found.integer
    assert found.reasons["r"] == "between float neighbours it gains nothing from codes"
    assert found.reasons["s"] == "8 bits round small probabilities to zero"


def test_a_relu_behind_a_conv_is_its_range() -> None:
    found = plan(
        f"""g ({IMAGE} x) => ({IMAGE} y) <{W}> {{
            [c] t = Conv <{SAME}> (x, w)  [r] u = Relu (t)  [e] y = Conv <{SAME}> (u, w) }}"""
    )
    assert found.integer == {"c", "r", "e"} and found.absorbed == {"r"}
    assert set(found.observed) == {"x", "u", "y"}  # not t, which is gone


def test_a_relu_is_not_absorbed_where_the_conv_has_another_reader() -> None:
    found = plan(
        f"""g ({IMAGE} x) => ({IMAGE} y) <{W}> {{
            [c] t = Conv <{SAME}> (x, w)  [r] u = Relu (t)  [e] v = Conv <{SAME}> (u, w)
            [a] s = Add (v, t)  [f] y = Conv <{SAME}> (s, w) }}"""
    )
    assert found.absorbed == frozenset()


def test_a_clip_whose_range_leaves_zero_out_is_not_absorbed() -> None:
    """A grid always holds zero, so it cannot end at one."""
    found = plan(
        f"""g ({IMAGE} x) => ({IMAGE} y) <{W}, float one = {{1}}, float six = {{6}}> {{
            [c] t = Conv <{SAME}> (x, w)  [r] u = Clip (t, one, six)
            [e] y = Conv <{SAME}> (u, w) }}"""
    )
    assert found.absorbed == frozenset()


def test_ops_that_move_values_share_the_grid_of_their_input() -> None:
    found = plan(
        f"""g ({IMAGE} x) => (float[1,4,8,8] y) <{W}> {{
            [c] t = Conv <{SAME}> (x, w)
            [p] u = MaxPool <kernel_shape = [2,2], strides = [2,2]> (t)
            [e] y = Conv <{SAME}> (u, w) }}"""
    )
    assert found.integer == {"c", "p", "e"}
    assert set(found.observed) == {"x", "t", "y"}


def test_a_residual_addition_between_convs_joins_them() -> None:
    found = plan(
        f"""g ({IMAGE} x) => ({IMAGE} y) <{W}> {{
            [c] t = Conv <{SAME}> (x, w)  [e] u = Conv <{SAME}> (t, w)
            [a] v = Add (t, u)  [f] y = Conv <{SAME}> (v, w) }}"""
    )
    assert "a" in found.integer


def test_a_matrix_product_on_real_values_is_quantized_at_run_time() -> None:
    found = plan("g (float[8,4] x) => (float[8,4] y) <" + W + "> { [p] y = MatMul (x, m) }")
    assert found.dynamic == {"p"} and not found.integer and not found.observed


def test_attention_scores_stay_float() -> None:
    found = plan("g (float[8,4] x, float[4,8] z) => (float[8,8] y) { [p] y = MatMul (x, z) }")
    assert "attention scores" in found.reasons["p"]


def test_a_matrix_product_behind_a_conv_takes_its_codes() -> None:
    found = plan(
        f"""g ({IMAGE} x) => (float[1,4] y) <{W}, int64[2] s = {{1, 4}}> {{
            [c] t = Conv <{SAME}> (x, w)  [p] u = GlobalAveragePool (t)
            [r] v = Reshape (u, s)  [g] y = Gemm (v, m, b) }}"""
    )
    assert {"c", "p", "r", "g"} <= found.integer


def test_lstm_weights_are_integer_and_gru_stays_with_its_reason() -> None:
    text = """g (float[1,1,2] x) => (float[1,1,1,1] y)
        <float[1,N,2] w = {1, 1, 1, 1, 1, 1, 1, 1}, float[1,N,1] r = {1, 1, 1, 1}> {
        [l] y = LSTM <hidden_size = 1> (x, w, r) }""".replace("N", "4")
    assert plan(text).dynamic == {"l"}
    gru = text.replace("LSTM", "GRU").replace("4,", "3,").replace("{1, 1, 1, 1, 1, 1, 1, 1}",
        "{1, 1, 1, 1, 1, 1}").replace("{1, 1, 1, 1}", "{1, 1, 1}")  # fmt: skip
    assert plan(gru).reasons == {"l": "onnxruntime has no integer GRU"}


def test_bodies_are_planned_with_the_main_graph() -> None:
    found = plan(
        f"""g (bool s, {IMAGE} x) => ({IMAGE} y) <{W}> {{
            [if] y = If (s) <
                then_branch = a () => ({IMAGE} u) {{ [c] u = Conv <{SAME}> (x, w) }},
                else_branch = e () => ({IMAGE} v) {{ [r] v = Relu (x) }}> }}"""
    )
    assert found.integer == {"c"} and set(found.observed) == {"x", "u"}


def test_every_node_is_planned_or_has_a_reason() -> None:
    text = f"""g ({IMAGE} x) => ({IMAGE} y) <{W}> {{
        [c] t = Conv <{SAME}> (x, w)  [g] u = Gelu (t)  [s] v = Shape (u)
        [h] y = Reshape (u, v) }}"""
    found = plan(text)
    assert found.integer | found.dynamic | set(found.reasons) == {"c", "g", "s", "h"}
    assert found.reasons["s"] == "it computes no reals that have a grid"
