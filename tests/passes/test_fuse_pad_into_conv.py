"""Zero padding in front of a Conv."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.fuse_pad_into_conv import FusePadIntoConv

WEIGHT = "float[1,1,1,1] w = {2}"


def padded(pads: str, fill: str = "", conv: str = "", more: str = "", attributes: str = "") -> str:
    return f"""g (float[1,1,4,4] x) => (float[1,1,H,W] y{more})
        <{WEIGHT}, int64[8] p = {{{pads}}}, float zero = {{0}}, float one = {{1}}> {{
        t = Pad {attributes} (x, p{fill}) y = Conv {conv} (t, w) }}"""


def joined(pads: str, more: str = "") -> str:
    return f"""g (float[1,1,4,4] x) => (float[1,1,H,W] y) <{WEIGHT}> {{
        y = Conv <{more} pads = [{pads}]> (x, w) }}"""


@pytest.mark.parametrize("fill", ["", ", zero"])
def test_widths_go_into_the_conv(fill: str) -> None:
    check_pass(padded("0,0,1,2,0,0,3,4", fill), FusePadIntoConv(), joined("1,2,3,4"))


def test_widths_add_up() -> None:
    text = padded("0,0,1,1,0,0,1,1", conv="<pads = [0,1,0,1]>")
    check_pass(text, FusePadIntoConv(), joined("1,2,1,2"))


def test_axes_that_are_named() -> None:
    text = """g (float[1,1,4,4] x) => (float[1,1,H,W] y)
        <float[1,1,1,1] w = {2}, int64[4] p = {1,2,3,4}, int64[2] axes = {-1,2}> {
        t = Pad (x, p, , axes) y = Conv (t, w) }"""
    check_pass(text, FusePadIntoConv(), joined("2,1,4,3"))


@pytest.mark.parametrize(
    "text",
    [
        padded("0,0,1,1,0,0,1,1", ", one"),
        padded("0,0,-1,1,0,0,1,1"),
        padded("1,0,1,1,0,0,1,1"),
        padded("0,0,1,1,0,0,1,1", conv='<auto_pad = "SAME_UPPER">'),
        padded("0,0,1,1,0,0,1,1", attributes='<mode = "edge">'),
        padded("0,0,1,1,0,0,1,1", more=", float[1,1,6,6] t"),
    ],
)
def test_other_pads_stay(text: str) -> None:
    check_unchanged(text, FusePadIntoConv())
