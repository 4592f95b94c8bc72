"""Constant factors and offsets in front of linear ops."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.fuse_affine_into_readers import FuseAffineIntoReaders

FUSE = FuseAffineIntoReaders()
WEIGHTS = "float[1,2,1,1] w = {1, 2}, float[1,2,1,1] v = {3, 4}, float[1] b = {1}, float s = {2}"


def test_a_factor_into_every_reader() -> None:
    check_pass(
        f"""g (float[1,2,3,3] x) => (float[1,1,3,3] y, float[1,1,3,3] z) <{WEIGHTS}> {{
            t = Mul (x, s)  y = Conv (t, w)  z = Conv (t, v, b) }}""",
        FUSE,
        """g (float[1,2,3,3] x) => (float[1,1,3,3] y, float[1,1,3,3] z)
            <float[1,2,1,1] w_scaled = {2, 4}, float[1,2,1,1] v_scaled = {6, 8},
             float[1] b = {1}> {
            y = Conv (x, w_scaled)  z = Conv (x, v_scaled, b) }""",
    )


def test_an_offset_into_the_bias() -> None:
    check_pass(
        f"""g (float[1,2,3,3] x) => (float[1,1,3,3] y) <{WEIGHTS}> {{
            t = Add (x, s)  y = Conv (t, v, b) }}""",
        FUSE,
        """g (float[1,2,3,3] x) => (float[1,1,3,3] y)
            <float[1,2,1,1] v = {3, 4}, float[1] Conv_y_offset_bias = {15}> {
            y = Conv (x, v, Conv_y_offset_bias) }""",
    )


def test_a_factor_by_channel_in_front_of_a_product() -> None:
    check_pass(
        """g (float[3,2] x) => (float[3,2] y)
            <float[2] s = {2, 4}, float[2,2] q = {1, 2, 3, 4}> {
            t = Mul (x, s)  y = MatMul (t, q) }""",
        FUSE,
        """g (float[3,2] x) => (float[3,2] y) <float[2,2] q_scaled = {2, 4, 12, 16}> {
            y = MatMul (x, q_scaled) }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("t = Mul (x, s)  a = Conv (t, w)  y = Add (a, t)", id="another reader"),
        pytest.param("t = Mul (x, x)  y = Conv (t, w)", id="no constant"),
    ],
)
def test_what_stays(body: str) -> None:
    shape = "1,2,3,3" if "Add (a" in body else "1,1,3,3"
    check_unchanged(f"g (float[1,2,3,3] x) => (float[{shape}] y) <{WEIGHTS}> {{ {body} }}", FUSE)


def test_an_offset_in_front_of_padding_stays() -> None:
    """Padding is zero behind the addition, so the offset is not the same at the rim."""
    check_unchanged(
        f"""g (float[1,2,3,3] x) => (float[1,1,5,5] y) <{WEIGHTS}> {{
            t = Add (x, s)  y = Conv <pads = [1,1,1,1]> (t, w) }}""",
        FUSE,
    )


def test_what_a_depthwise_conv_reads_stays() -> None:
    check_unchanged(
        """g (float[1,2,3,3] x) => (float[1,2,3,3] y)
            <float s = {2}, float[2,1,1,1] w = {1, 2}> {
            t = Mul (x, s)  y = Conv <group = 2> (t, w) }""",
        FUSE,
    )
