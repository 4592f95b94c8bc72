"""Means over images, as torch's adaptive pooling and squeeze-and-excite blocks export them."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.use_global_average_pool import UseGlobalAveragePool


def test_axes_as_an_input() -> None:
    check_pass(
        """g (float[1,2,3,3] x) => (float[1,2,1,1] y) <int64[2] a = {-1, 2}> {
            y = ReduceMean <keepdims = 1> (x, a) }""",
        UseGlobalAveragePool(),
        """g (float[1,2,3,3] x) => (float[1,2,1,1] y) {
            y = GlobalAveragePool (x) }""",
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            """g (float[1,2,3,3] x) => (float[1,2] y) <int64[2] a = {2, 3}> {
                y = ReduceMean <keepdims = 0> (x, a) }""",
            id="the axes are dropped",
        ),
        pytest.param(
            """g (float[1,2,3,3] x) => (float[1,1,3,3] y) <int64[1] a = {1}> {
                y = ReduceMean (x, a) }""",
            id="a mean over channels",
        ),
        pytest.param(
            """g (float[1,2,3,3] x, int64[2] a) => (float[1,2,1,1] y) {
                y = ReduceMean (x, a) }""",
            id="axes that are computed",
        ),
    ],
)
def test_other_means_stay(text: str) -> None:
    check_unchanged(text, UseGlobalAveragePool())
