"""Channel ranges that differ, between nodes whose constants can take the difference up."""

import numpy as np
from checks import check_pass, check_unchanged, model_from

from lucid_fx.passes.equalization_sites import find_sites
from lucid_fx.passes.equalize_channels import (
    WIDEST,
    EqualizeChannels,
    channel_factors,
    predicted_noise,
)

CONVS = "float[2,2,1,1] w = {1, 2, 3, 4}, float[2] b = {2, 4}, float[1,2,1,1] v = {1, 2}"
PAIR = f"""g (float[1,2,3,3] x) => (float[1,1,3,3] y) <{CONVS}> {{
    [c] t = Conv (x, w, b)  [d] y = Conv (t, v) }}"""
QUARTER = EqualizeChannels({"t": np.array([1, 0.25])})
"""A power of two, so that no number is rounded."""


def test_two_convs() -> None:
    check_pass(
        PAIR,
        QUARTER,
        """g (float[1,2,3,3] x) => (float[1,1,3,3] y)
            <float[2,2,1,1] w_equalized = {1, 2, 12, 16}, float[2] b_equalized = {2, 16},
             float[1,2,1,1] v_equalized = {1, 0.5}> {
            [c] t = Conv (x, w_equalized, b_equalized)  [d] y = Conv (t, v_equalized) }""",
        once=True,
    )


def test_through_a_relu() -> None:
    check_pass(
        f"""g (float[1,2,3,3] x) => (float[1,1,3,3] y) <{CONVS}> {{
            c = Conv (x, w, b)  t = Relu (c)  y = Conv (t, v) }}""",
        QUARTER,
        """g (float[1,2,3,3] x) => (float[1,1,3,3] y)
            <float[2,2,1,1] w_equalized, float[2] b_equalized, float[1,2,1,1] v_equalized> {
            c = Conv (x, w_equalized, b_equalized)  t = Relu (c)  y = Conv (t, v_equalized) }""",
        once=True,
    )


def test_a_normalisation_in_front_of_matrix_products() -> None:
    """The transformer case: LayerNormalization read by several projections."""
    check_pass(
        """g (float[3,2] x) => (float[3,2] y, float[3,2] z)
            <float[2] s = {1, 2}, float[2] o = {0.5, 1}, float[2,2] q = {1, 2, 3, 4},
             float[2,2] k = {5, 6, 7, 8}> {
            t = LayerNormalization (x, s, o)  y = MatMul (t, q)  z = Gemm <transB = 1> (t, k) }""",
        QUARTER,
        """g (float[3,2] x) => (float[3,2] y, float[3,2] z)
            <float[2] s_equalized = {1, 8}, float[2] o_equalized = {0.5, 4},
             float[2,2] q_equalized = {1, 2, 0.75, 1}, float[2,2] k_equalized = {5, 1.5, 7, 2}> {
            t = LayerNormalization (x, s_equalized, o_equalized)
            y = MatMul (t, q_equalized)  z = Gemm <transB = 1> (t, k_equalized) }""",
        once=True,
    )


def test_a_weight_that_a_third_node_reads_is_not_changed() -> None:
    check_pass(
        f"""g (float[1,2,3,3] x) => (float[1,1,3,3] y, float[1,2,3,3] z) <{CONVS}> {{
            t = Conv (x, w, b)  y = Conv (t, v)  z = Conv (x, w) }}""",
        QUARTER,
        """g (float[1,2,3,3] x) => (float[1,1,3,3] y, float[1,2,3,3] z)
            <float[2,2,1,1] w = {1, 2, 3, 4}, float[2,2,1,1] w_equalized, float[2] b_equalized,
             float[1,2,1,1] v_equalized> {
            t = Conv (x, w_equalized, b_equalized)  y = Conv (t, v_equalized)  z = Conv (x, w) }""",
        once=True,
    )


def test_what_another_op_reads_too_stays() -> None:
    check_unchanged(
        f"""g (float[1,2,3,3] x) => (float[1,2,3,3] y) <{CONVS}> {{
            t = Conv (x, w, b)  a = Conv (t, v)  y = Add (a, t) }}""",
        QUARTER,
    )


def test_a_mul_in_front_of_convs_whose_input_is_not_made_by_constants() -> None:
    """The even value takes over the name, since it is what goes on the grid."""
    check_pass(
        f"""g (float[1,2,3,3] x) => (float[1,1,3,3] y) <{CONVS}> {{
            c = Conv (x, w, b)  t = Sigmoid (c)  y = Conv (t, v) }}""",
        QUARTER,
        """g (float[1,2,3,3] x) => (float[1,1,3,3] y)
            <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] b = {2, 4},
             float[1,2,1,1] v_equalized = {1, 0.5}, float[2,1,1] t_evening = {1, 4}> {
            c = Conv (x, w, b)  t_uneven = Sigmoid (c)  t = Mul (t_uneven, t_evening)
            y = Conv (t, v_equalized) }""",
        once=True,
    )


def test_the_chosen_factors_predict_less_noise() -> None:
    """One channel eight times wider than the other, and a weight that does not mind."""
    (site,) = find_sites(model_from(PAIR))
    low, high = np.array([-8.0, 0.0]), np.array([2.0, 1.0])
    factors = channel_factors(site, {"t": (low, high)})
    assert factors is not None and factors[0] > factors[1] >= 1 / WIDEST
    weights = [np.array([1.0, 2.0]).reshape(2, 1, 1)]
    before = predicted_noise(weights, low, high, np.ones(2))
    assert predicted_noise(weights, low, high, factors) < before


def test_even_ranges_are_left_alone() -> None:
    text = PAIR.replace("v = {1, 2}", "v = {1, 1}")
    (site,) = find_sites(model_from(text))
    assert channel_factors(site, {"t": (np.zeros(2), np.ones(2))}) is None


def test_dead_or_broken_ranges_give_no_factors() -> None:
    (site,) = find_sites(model_from(PAIR))
    one_dead = channel_factors(site, {"t": (np.zeros(2), np.array([1.0, 0.0]))})
    assert one_dead is None or np.isfinite(one_dead).all()
    assert channel_factors(site, {"t": (np.zeros(2), np.zeros(2))}) is None
    assert channel_factors(site, {"t": (np.zeros(2), np.array([1.0, np.inf]))}) is None
    assert channel_factors(site, {}) is None


def test_a_mul_in_front_of_products_that_share_their_input() -> None:
    """The post-norm transformer: an addition reads the value too, so it must keep its scale."""
    check_pass(
        """g (float[3,2] x) => (float[3,2] z) <float[2,2] q = {1, 2, 3, 4}> {
            t = Relu (x)  y = MatMul (t, q)  z = Add (y, t) }""",
        QUARTER,
        """g (float[3,2] x) => (float[3,2] z)
            <float[2,2] q_equalized = {1, 2, 0.75, 1}, float[2] t_evening = {1, 4}> {
            t = Relu (x)  MatMul_y_Mul_out = Mul (t, t_evening)
            y = MatMul (MatMul_y_Mul_out, q_equalized)  z = Add (y, t) }""",
        once=True,
    )
