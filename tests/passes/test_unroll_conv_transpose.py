"""Upsampling by learnt blocks: the heads of segmentation and text detection networks."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.unroll_conv_transpose import UnrollConvTranspose


def test_blocks_that_do_not_overlap() -> None:
    check_pass(
        """g (float[1,2,2,3] x) => (float[1,1,4,6] y)
            <float[2,1,2,2] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[1] b = {0.5}> {
            [up] y = ConvTranspose <kernel_shape = [2,2], strides = [2,2]> (x, w, b) }""",
        UnrollConvTranspose(),
        """g (float[1,2,2,3] x) => (float[1,1,4,6] y)
            <float[4,2,1,1] up_unrolled = {1, 5, 2, 6, 3, 7, 4, 8},
             float[4] up_bias = {0.5, 0.5, 0.5, 0.5}> {
            up_Conv_out = Conv <kernel_shape = [1,1]> (x, up_unrolled, up_bias)
            y = DepthToSpace <blocksize = 2, mode = "DCR"> (up_Conv_out) }""",
    )


def test_several_channels_without_a_bias() -> None:
    numbers = ", ".join(str(number) for number in range(54))
    check_pass(
        f"""g (float[1,2,2,2] x) => (float[1,3,6,6] y) <float[2,3,3,3] w = {{{numbers}}}> {{
            [up] y = ConvTranspose <kernel_shape = [3,3], strides = [3,3]> (x, w) }}""",
        UnrollConvTranspose(),
        """g (float[1,2,2,2] x) => (float[1,3,6,6] y) <float[27,2,1,1] up_unrolled> {
            up_Conv_out = Conv <kernel_shape = [1,1]> (x, up_unrolled)
            y = DepthToSpace <blocksize = 3, mode = "DCR"> (up_Conv_out) }""",
    )


@pytest.mark.parametrize(
    ("attributes", "height"),
    [
        pytest.param("kernel_shape = [2,2], strides = [1,1]", 3, id="blocks overlap"),
        pytest.param("kernel_shape = [2,2], strides = [3,3]", 5, id="gaps between blocks"),
        pytest.param("kernel_shape = [2,2], strides = [2,2], pads = [1,1,1,1]", 2, id="cropped"),
        pytest.param(
            "kernel_shape = [2,2], strides = [2,2], output_padding = [1,1]", 5, id="padded"
        ),
    ],
)
def test_what_is_no_block_stays(attributes: str, height: int) -> None:
    check_unchanged(
        f"""g (float[1,2,2,2] x) => (float[1,1,{height},{height}] y)
            <float[2,1,2,2] w = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{
            y = ConvTranspose <{attributes}> (x, w) }}""",
        UnrollConvTranspose(),
    )


def test_groups_stay() -> None:
    check_unchanged(
        """g (float[1,2,2,2] x) => (float[1,2,4,4] y)
            <float[2,1,2,2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
            y = ConvTranspose <group = 2, kernel_shape = [2,2], strides = [2,2]> (x, w) }""",
        UnrollConvTranspose(),
    )
