"""Batch normalisation behind every linear op it can be folded into."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.provenance import origins
from lucid_fx.passes.fuse_conv_batch_norm import FuseConvBatchNorm

NORM = "float[2] g = {1, 2}, float[2] b = {0, 1}, float[2] m = {0.5, 0}, float[2] v = {1, 4}"
EPS = "epsilon = 0.0"
"""Makes the factors of `NORM` exactly 1 and 1, the offsets -0.5 and 1."""


def test_conv_without_a_bias() -> None:
    model = check_pass(
        f"""g (float[1,1,3,3] x) => (float[1,2,3,3] y) <float[2,1,1,1] w = {{1, 2}}, {NORM}> {{
            [conv] c = Conv (x, w)  [norm] y = BatchNormalization <{EPS}> (c, g, b, m, v) }}""",
        FuseConvBatchNorm(),
        """g (float[1,1,3,3] x) => (float[1,2,3,3] y)
            <float[2,1,1,1] w_folded = {1, 2}, float[2] w_bias = {-0.5, 1}> {
            y = Conv (x, w_folded, w_bias) }""",
    )
    assert origins(model.graph.node(0)) == ("conv", "norm")
    assert ledger_of(model)["norm"].reason == "folded into conv"


def test_conv_with_a_bias_in_a_body() -> None:
    check_pass(
        f"""g (bool s, float[1,1,3,3] x) => (float[1,2,3,3] y)
            <float[2,1,1,1] w = {{1, 2}}, float[2] k = {{1, 1}}, {NORM}> {{
            y = If (s) <
                then_branch = a () => (float[1,2,3,3] u) {{
                    c = Conv (x, w, k)  u = BatchNormalization <{EPS}> (c, g, b, m, v) }},
                else_branch = e () => (float[1,2,3,3] d) {{ d = Conv (x, w) }}> }}""",
        FuseConvBatchNorm(),
        """g (bool s, float[1,1,3,3] x) => (float[1,2,3,3] y)
            <float[2,1,1,1] w_folded = {1, 2}, float[2] w_bias = {0.5, 2},
             float[2,1,1,1] w = {1, 2}> {
            y = If (s) <
                then_branch = a () => (float[1,2,3,3] u) { u = Conv (x, w_folded, w_bias) },
                else_branch = e () => (float[1,2,3,3] d) { d = Conv (x, w) }> }""",
    )


def test_transposed_conv_with_groups_scales_the_right_channels() -> None:
    """The weight of a ConvTranspose is (in, out / groups, …): rows of a group share a channel."""
    numbers = ", ".join(str(number) for number in range(1, 33))
    check_pass(
        f"""g (float[1,4,2,2] x) => (float[1,4,3,3] y)
            <float[4,2,2,2] w = {{{numbers}}}, float[4] g = {{1, 2, 3, 4}},
             float[4] b = {{0, 1, 0, 1}}, float[4] m = {{0.5, 0, 1, 1}},
             float[4] v = {{1, 4, 1, 4}}> {{
            c = ConvTranspose <group = 2> (x, w)  y = BatchNormalization (c, g, b, m, v) }}""",
        FuseConvBatchNorm(),
        """g (float[1,4,2,2] x) => (float[1,4,3,3] y)
            <float[4,2,2,2] w_folded, float[4] w_bias> {
            y = ConvTranspose <group = 2> (x, w_folded, w_bias) }""",
    )


@pytest.mark.parametrize("trans", [0, 1])
def test_gemm_in_both_orders_of_its_weight(trans: int) -> None:
    folded = "1, 2, 3, 4"  # the factors are one
    check_pass(
        f"""g (float[3,2] x) => (float[3,2] y)
            <float[2,2] w = {{1, 2, 3, 4}}, float[2] k = {{1, 1}}, {NORM}> {{
            c = Gemm <transB = {trans}, beta = 2.0> (x, w, k)
            y = BatchNormalization <{EPS}> (c, g, b, m, v) }}""",
        FuseConvBatchNorm(),
        f"""g (float[3,2] x) => (float[3,2] y)
            <float[2,2] w_folded = {{{folded}}}, float[2] w_bias = {{1.5, 3}}> {{
            y = Gemm <transB = {trans}> (x, w_folded, w_bias) }}""",
    )


def test_a_weight_that_another_conv_uses_is_not_changed() -> None:
    check_pass(
        f"""g (float[1,1,3,3] x) => (float[1,2,3,3] y) <float[2,1,1,1] w = {{1, 2}}, {NORM}> {{
            c = Conv (x, w)  n = BatchNormalization <{EPS}> (c, g, b, m, v)
            d = Conv (x, w)  y = Add (n, d) }}""",
        FuseConvBatchNorm(),
        """g (float[1,1,3,3] x) => (float[1,2,3,3] y)
            <float[2,1,1,1] w_folded = {1, 2}, float[2] w_bias = {-0.5, 1},
             float[2,1,1,1] w = {1, 2}> {
            n = Conv (x, w_folded, w_bias)  d = Conv (x, w)  y = Add (n, d) }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            "c = Conv (x, w)  n = BatchNormalization (c, g, b, m, v)  y = Add (n, c)",
            id="the Conv has a second reader",
        ),
        pytest.param(
            "c = Conv (x, w)  y, p, q = BatchNormalization <training_mode = 1> (c, g, b, m, v)",
            id="training",
        ),
        pytest.param(
            "c = Conv (x, w, bias)  y = BatchNormalization (c, g, b, m, v)",
            id="a bias that is computed",
        ),
        pytest.param(
            "c = Conv (x, w)  r = Relu (c)  y = BatchNormalization (r, g, b, m, v)",
            id="something in between",
        ),
    ],
)
def test_what_cannot_be_folded_stays(body: str) -> None:
    check_unchanged(
        f"""g (float[1,1,3,3] x, float[2] bias) => (float[1,2,3,3] y)
            <float[2,1,1,1] w = {{1, 2}}, {NORM}> {{ {body} }}""",
        FuseConvBatchNorm(),
    )


def test_a_gemm_bias_for_each_row_stays() -> None:
    """C of shape (rows, 1) is as long as there are columns only by accident."""
    check_unchanged(
        f"""g (float[2,2] x) => (float[2,2] y)
            <float[2,2] w = {{1, 2, 3, 4}}, float[2,1] k = {{1, 5}}, {NORM}> {{
            c = Gemm (x, w, k)  y = BatchNormalization (c, g, b, m, v) }}""",
        FuseConvBatchNorm(),
    )


def test_a_conv_outside_a_loop_is_not_moved_into_it() -> None:
    check_unchanged(
        f"""g (int64 n, bool s, float[1,1,3,3] x, float[1,2,3,3] z) => (float[1,2,3,3] y)
            <float[2,1,1,1] w = {{1, 2}}, {NORM}> {{
            c = Conv (x, w)
            y = Loop (n, s, z) <body = l (int64 i, bool t, float[1,2,3,3] a)
                => (bool t2, float[1,2,3,3] e) {{
                t2 = Identity (t)  d = BatchNormalization (c, g, b, m, v)  e = Add (a, d) }}> }}""",
        FuseConvBatchNorm(),
    )
