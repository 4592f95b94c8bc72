"""Learnt scales and offsets behind linear ops."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.fuse_conv_affine import FuseConvAffine

CONV = "float[2,1,1,1] w = {1, 2}, float[2,1,1] s = {2, 3}, float k = {0.5}"


def test_a_factor_for_each_channel_and_a_scalar_offset() -> None:
    check_pass(
        f"""g (float[1,1,3,3] x) => (float[1,2,3,3] y) <{CONV}> {{
            c = Conv (x, w)  t = Mul (s, c)  y = Add (t, k) }}""",
        FuseConvAffine(),
        """g (float[1,1,3,3] x) => (float[1,2,3,3] y)
            <float[2,1,1,1] w_folded_folded = {2, 6}, float[2] w_folded_bias = {0.5, 0.5}> {
            y = Conv (x, w_folded_folded, w_folded_bias) }""",
    )


def test_gemm_columns() -> None:
    check_pass(
        """g (float[3,2] x) => (float[3,2] y)
            <float[2,2] w = {1, 2, 3, 4}, float[2] b = {1, 1}, float[2] s = {2, 3}> {
            c = Gemm (x, w, b)  y = Mul (c, s) }""",
        FuseConvAffine(),
        """g (float[3,2] x) => (float[3,2] y)
            <float[2,2] w_folded = {2, 6, 6, 12}, float[2] w_bias = {2, 3}> {
            y = Gemm (x, w_folded, w_bias) }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("c = Conv (x, w)  y = Add (c, p)", id="an offset for each pixel"),
        pytest.param("c = Conv (x, w)  y = Mul (c, z)", id="a factor that is computed"),
        pytest.param("c = Conv (x, w)  t = Mul (c, s)  y = Add (t, c)", id="a second reader"),
        pytest.param("c = Conv (x, w)  y = Add (c, c)", id="no constant"),
    ],
)
def test_what_is_no_affine_map_by_channel_stays(body: str) -> None:
    check_unchanged(
        f"""g (float[1,1,2,2] x, float z) => (float[1,2,2,2] y)
            <{CONV}, float[1,1,2,2] p = {{1, 2, 3, 4}}> {{ {body} }}""",
        FuseConvAffine(),
    )


def test_a_constant_that_broadens_the_result_stays() -> None:
    """Rank 5 against rank 4: the product has one dimension more than the Conv."""
    check_unchanged(
        """g (float[1,1,2,2] x) => (float[1,1,2,2,2] y)
            <float[2,1,1,1] w = {1, 2}, float[1,1,2,1,1] s = {2, 3}> {
            c = Conv (x, w)  y = Mul (c, s) }""",
        FuseConvAffine(),
    )


def test_a_constant_that_broadens_one_channel_to_many_stays() -> None:
    check_unchanged(
        """g (float[1,1,2,2] x) => (float[1,3,2,2] y)
            <float[1,1,1,1] w = {2}, float[3,1,1] s = {1, 2, 3}> {
            c = Conv (x, w)  y = Mul (c, s) }""",
        FuseConvAffine(),
    )
