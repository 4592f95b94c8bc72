"""Means by channel, for the correction of biases."""

import numpy as np
import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.tap_channel_means import TapChannelMeans
from lucid_fx.runtime.session import Session

RELU = "g (float[1,2,3,3] x) => (float[1,2,3,3] y) { y = Relu (x) }"


def test_a_mean_becomes_an_output() -> None:
    model = check_pass(
        RELU,
        TapChannelMeans({"y": 1}),
        """g (float[1,2,3,3] x) => (float[1,2,3,3] y, float[N] "lucid_fx/y/channel_mean")
            <int64[3] y_mean_axes = {0, 2, 3}> {
            y = Relu (x)
            "lucid_fx/y/channel_mean" = ReduceMean <keepdims = 0> (y, y_mean_axes) }""",
        exact=True, once=True,
    )  # fmt: skip
    x = np.stack([np.full((3, 3), 2.0), np.full((3, 3), -1.0)])[None].astype(np.float32)
    assert Session(model).run({"x": x}, ["lucid_fx/y/channel_mean"])[0].tolist() == [2, 0]


def test_axes_are_an_attribute_before_opset_18() -> None:
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    check_pass(
        f"{header} g (float[4,2] x) => (float[4,2] y) {{ y = Relu (x) }}",
        TapChannelMeans({"y": -1}),
        f"""{header} g (float[4,2] x) => (float[4,2] y, float[N] "lucid_fx/y/channel_mean") {{
            y = Relu (x)
            "lucid_fx/y/channel_mean" = ReduceMean <axes = [0], keepdims = 0> (y) }}""",
        exact=True, once=True,
    )  # fmt: skip


def test_names_that_are_taken() -> None:
    """An output of the model called ``y_channel_mean`` is not mistaken for ours."""
    check_pass(
        """g (float[4,2] x, int64[1] y_mean_axes) => (float[4,2] y, int64[1] y_channel_mean) {
            y = Relu (x)  y_channel_mean = Neg (y_mean_axes) }""",
        TapChannelMeans({"y": 1}),
        """g (float[4,2] x, int64[1] y_mean_axes)
            => (float[4,2] y, int64[1] y_channel_mean, float[N] "lucid_fx/y/channel_mean")
            <int64[1] y_mean_axes_1 = {0}> {
            y = Relu (x)  y_channel_mean = Neg (y_mean_axes)
            "lucid_fx/y/channel_mean" = ReduceMean <keepdims = 0> (y, y_mean_axes_1) }""",
        exact=True, once=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(RELU, id="not asked for"),
        pytest.param(
            """g (bool c, float[2] x) => (float[2] y) {
                y = If (c) <
                    then_branch = a () => (float[2] inner) { inner = Relu (x) },
                    else_branch = b () => (float[2] v) { v = Neg (x) }> }""",
            id="inside a body",
        ),
        pytest.param("g (float x) => (float inner) { inner = Relu (x) }", id="a scalar"),
    ],
)
def test_what_cannot_be_an_output_stays(text: str) -> None:
    check_unchanged(text, TapChannelMeans({"inner": 0}))
