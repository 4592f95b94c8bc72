"""Subtraction and division by constants: input normalisation, attention scaling."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.normalize_arithmetic import NormalizeArithmetic


def test_sub_and_div_become_add_and_mul() -> None:
    check_pass(
        """g (float[2] x) => (float[2] y) <float[2] k = {2, 4}> {
            [s] a = Sub (x, k)  [d] y = Div (a, k) }""",
        NormalizeArithmetic(),
        """g (float[2] x) => (float[2] y)
            <float[2] s_operand = {-2, -4}, float[2] d_operand = {0.5, 0.25}> {
            [s_Add] a = Add (x, s_operand)  [d_Mul] y = Mul (a, d_operand) }""",
    )


def test_max_and_min_with_a_number_become_clip() -> None:
    check_pass(
        """g (float[2] x) => (float[2] y) <float k = {-0.4}, float[1] l = {2}> {
            [m] a = Max (x, k)  [n] y = Min (l, a) }""",
        NormalizeArithmetic(),
        """g (float[2] x) => (float[2] y) <float m_bound = {-0.4}, float n_bound = {2}> {
            [m_Clip] a = Clip (x, m_bound)  [n_Clip] y = Clip (a, "", n_bound) }""",
    )


def test_inside_a_body() -> None:
    check_pass(
        """g (bool c, float[2] x) => (float[2] y) <float k = {8}> {
            y = If (c) <
                then_branch = a () => (float[2] u) { [d] u = Div (x, k) },
                else_branch = b () => (float[2] v) { v = Relu (x) }> }""",
        NormalizeArithmetic(),
        """g (bool c, float[2] x) => (float[2] y) <float d_operand = {0.125}> {
            y = If (c) <
                then_branch = a () => (float[2] u) { [d_Mul] u = Mul (x, d_operand) },
                else_branch = b () => (float[2] v) { v = Relu (x) }> }""",
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "g (float[2] x) => (float[2] y) <float[2] k = {2, 0}> { y = Div (x, k) }",
            id="a division by zero",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y) <float[2] k = {2, 1e-39}> { y = Div (x, k) }",
            id="a divisor whose inverse overflows",
        ),
        pytest.param(
            "g (int64[2] x) => (int64[2] y) <int64[2] k = {2, 3}> { y = Div (x, k) }",
            id="integers, which divide with a remainder",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y) <float k = {1}> { y = Sub (k, x) }",
            id="the constant comes first",
        ),
        pytest.param(
            "g (float[2] x, float[2] k) => (float[2] y) { y = Sub (x, k) }", id="no constant"
        ),
    ],
)
def test_what_has_no_such_form_stays(text: str) -> None:
    check_unchanged(text, NormalizeArithmetic())
