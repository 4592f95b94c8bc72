"""From operator set 11 and 12 to 13 and 17: the same numbers in the newer form."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.raise_opset import RaiseOpset


def text(opset: int, body: str, constants: str = "", outputs: str = "float[2,3,4] y") -> str:
    return f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[2,3,4] x) => ({outputs}) {constants} {{ {body} }}"""


def test_attributes_become_inputs() -> None:
    check_pass(
        text(11, """[u] a = Unsqueeze <axes = [0]> (x) [s] y = Squeeze <axes = [0]> (a)
             [r] z = ReduceSum <axes = [1], keepdims = 0> (x)
             [p] b, c = Split <axis = 2, split = [1, 3]> (x)""",
             outputs="float[2,3,4] y, float[2,4] z, float[2,3,1] b, float[2,3,3] c"),
        RaiseOpset(13),
        text(13, """[u] a = Unsqueeze (x, u_axes) [s] y = Squeeze (a, s_axes)
             [r] z = ReduceSum <keepdims = 0> (x, r_axes)
             [p] b, c = Split <axis = 2> (x, p_split)""",
             "<int64[1] u_axes={0}, int64[1] s_axes={0}, int64[1] r_axes={1},"
             " int64[2] p_split={1,3}>",
             "float[2,3,4] y, float[2,4] z, float[2,3,1] b, float[2,3,3] c"),
        exact=True,
    )  # fmt: skip


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [2, -1])
def test_softmax_over_the_last_axis_is_the_same(op_type: str, axis: int) -> None:
    check_pass(
        text(11, f"y = {op_type} <axis = {axis}> (x)"),
        RaiseOpset(17),
        text(17, f"y = {op_type} <axis = {axis}> (x)"),
    )


def test_softmax_over_several_axes_stays_and_is_told() -> None:
    model = check_unchanged(text(12, "y = Softmax (x)"), RaiseOpset(13))
    assert "stays 12: Softmax is over all axes from 1 on" in ledger_of(model).notes[0]


def test_dropout() -> None:
    check_pass(
        text(11, "[d] y = Dropout <ratio = 0.3> (x)"),
        RaiseOpset(12),
        text(12, "[d] y = Dropout (x, d_ratio)", "<float d_ratio = {0.3}>"),
        exact=True,
    )


def test_training_stays() -> None:
    body = "y, m, v = BatchNormalization (x, one, one, one, one)"
    ones = "<float[3] one = {1,1,1}>"
    check_unchanged(text(12, body, ones, "float[2,3,4] y, float[3] m"), RaiseOpset(17))
    assert RaiseOpset(13).version == 13


def test_a_later_operator_set_stays() -> None:
    check_unchanged(text(18, "y = Relu (x)"), RaiseOpset(13))


def test_bodies_are_raised_too() -> None:
    def with_if(opset: int, body: str, constants: str = "") -> str:
        return f"""<ir_version: 8, opset_import: ["" : {opset}]>
            g (float[1,3] x, bool c) => (float[3] y) {constants} {{
            y = If (c) <then_branch = a () => (float[3] p) {{ [s] p = Squeeze {body} }},
                        else_branch = b () => (float[3] q) {{
                            q = ReduceMax <axes = [0], keepdims = 0> (x) }}> }}"""

    check_pass(
        with_if(11, "<axes = [0]> (x)"),
        RaiseOpset(13),
        with_if(13, "(x, s_axes)", "<int64[1] s_axes = {0}>"),
    )
