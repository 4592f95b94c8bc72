"""Gelu with erf, in the orders in which exporters multiply."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.fuse_gelu import FuseGelu

CONSTANTS = "float r = {1.41421356}, float i = {0.70710678}, float one = {1}, float half = {0.5}"


def gelu(inner: str, outer: str, opset: int = 17, more: str = "") -> str:
    return f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[2,3] x) => (float[2,3] y{more}) <{CONSTANTS}> {{
        s = {inner} e = Erf (s) a = Add (e, one) {outer} }}"""


@pytest.mark.parametrize("inner", ["Div (x, r)", "Mul (x, i)", "Mul (i, x)"])
@pytest.mark.parametrize(
    "outer",
    [
        "m = Mul (x, a) y = Mul (m, half)",
        "m = Mul (half, x) y = Mul (m, a)",
        "m = Mul (a, half) y = Mul (x, m)",
    ],
)
def test_spellings(inner: str, outer: str) -> None:
    check_pass(
        gelu(inner, outer),
        FuseGelu(),
        f"""<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
            g (float[2,3] x) => (float[2,3] y) <{CONSTANTS}> {{ y = com.microsoft.Gelu (x) }}""",
    )


def test_newer_operator_sets_have_the_op() -> None:
    check_pass(
        gelu("Div (x, r)", "m = Mul (x, a) y = Mul (m, half)", 20),
        FuseGelu(),
        f"""<ir_version: 8, opset_import: ["" : 20]>
            g (float[2,3] x) => (float[2,3] y) <{CONSTANTS}> {{ y = Gelu (x) }}""",
    )


@pytest.mark.parametrize(
    "text",
    [
        gelu("Mul (x, half)", "m = Mul (x, a) y = Mul (m, half)"),  # another width
        gelu("Div (x, r)", "m = Mul (x, a) y = Mul (m, i)"),  # another height
        gelu("Div (x, r)", "m = Mul (e, a) y = Mul (m, half)"),  # another operand
        gelu("Div (x, r)", "m = Mul (x, a) y = Mul (m, half)", more=", float[2,3] e"),
    ],
)
def test_what_is_no_gelu_stays(text: str) -> None:
    check_unchanged(text, FuseGelu())
