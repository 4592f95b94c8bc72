"""Integer regions run channels-last; Transposes stand at their rims only."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.assign_channels_last import AssignChannelsLast

GRID = "float s = {0.125}, uint8 z = {128}, int8 wz = {0}, int8[2,2,1,1] w = {1, 2, 3, 4}"
IMAGE = "uint8[1,2,4,4]"
CONV = "QLinearConv ({}, s, z, w, s, wz, s, z)"
NHWC = "com.microsoft.QLinearConv <channels_last = 1> ({}, s, z, w, s, wz, s, z)"


def test_the_rim_is_where_it_costs_least() -> None:
    check_pass(
        f"""g ({IMAGE} x) => ({IMAGE} y) <{GRID}> {{
            [c] t = {CONV.format("x")}  [d] u = {CONV.format("t")}
            [a] y = com.microsoft.QLinearAdd (u, s, z, x, s, z, s, z) }}""",
        AssignChannelsLast(),
        f"""g ({IMAGE} x) => ({IMAGE} y) <{GRID}> {{
            x_turned = Transpose <perm = [0, 2, 3, 1]> (x)
            c_QLinearConv_out = {NHWC.format("x_turned")}
            d_QLinearConv_out = {NHWC.format("c_QLinearConv_out")}
            u = Transpose <perm = [0, 3, 1, 2]> (d_QLinearConv_out)
            [a] y = com.microsoft.QLinearAdd (u, s, z, x, s, z, s, z) }}""",
        exact=True,
    )


def test_an_addition_between_convs_does_not_break_the_region() -> None:
    check_pass(
        f"""g ({IMAGE} x) => ({IMAGE} y) <{GRID}, {IMAGE} u> {{
            [c] t = {CONV.format("x")}
            [a] u = com.microsoft.QLinearAdd (t, s, z, x, s, z, s, z)
            [d] y = {CONV.format("u")} }}""",
        AssignChannelsLast(),
        f"""g ({IMAGE} x) => ({IMAGE} y) <{GRID}> {{
            x_turned = Transpose <perm = [0, 2, 3, 1]> (x)
            c_QLinearConv_out = {NHWC.format("x_turned")}
            a_QLinearAdd_out =
                com.microsoft.QLinearAdd (c_QLinearConv_out, s, z, x_turned, s, z, s, z)
            d_QLinearConv_out = {NHWC.format("a_QLinearAdd_out")}
            y = Transpose <perm = [0, 3, 1, 2]> (d_QLinearConv_out) }}""",
        exact=True,
    )


def test_a_lone_conv_gains_nothing() -> None:
    """onnxruntime transposes inside the op as we would outside of it."""
    check_unchanged(
        f"g ({IMAGE} x) => ({IMAGE} y) <{GRID}> {{ y = {CONV.format('x')} }}", AssignChannelsLast()
    )


BETWEEN = {
    "MaxPool <kernel_shape = [2, 2]> (t)":
        "com.microsoft.NhwcMaxPool <kernel_shape = [2, 2]> (n)",
    "com.microsoft.QLinearAveragePool <kernel_shape = [2, 2]> (t, s, z, s, z)":
        "com.microsoft.QLinearAveragePool <channels_last = 1, kernel_shape = [2, 2]>"
        " (n, s, z, s, z)",
    "com.microsoft.QLinearGlobalAveragePool (t, s, z, s, z)":
        "com.microsoft.QLinearGlobalAveragePool <channels_last = 1> (n, s, z, s, z)",
    "com.microsoft.QLinearConcat <axis = 1> (s, z, t, s, z, x, s, z)":
        "com.microsoft.QLinearConcat <axis = 3> (s, z, n, s, z, x_turned, s, z)",
    "com.microsoft.QLinearSigmoid (t, s, z, s, z)":
        "com.microsoft.QLinearSigmoid (n, s, z, s, z)",
    "com.microsoft.QLinearMul (t, s, z, k, s, z, s, z)":
        "com.microsoft.QLinearMul (n, s, z, k_turned, s, z, s, z)",
    "Pad (t, pads, z)": "Pad (n, o_turned, z)",
    "Clip (t, z)": "Clip (n, z)",
}  # fmt: skip
"""Ops between two Convs, channels-first and channels-last."""
SHAPES = {"MaxPool": "1,2,3,3", "QLinearAveragePool": "1,2,3,3", "Pad": "1,2,5,4",
          "QLinearGlobalAveragePool": "1,2,1,1"}  # fmt: skip
"""Of the results, where that is not `IMAGE`; ONNX infers none for the ops of onnxruntime."""


@pytest.mark.parametrize("op", BETWEEN, ids=lambda op: op.split(" ")[0])
def test_ops_between_convs_follow_them(op: str) -> None:
    more = """int64[8] pads = {0, 0, 1, 0, 0, 0, 0, 0}, uint8[2,1,1] k = {130, 120},
        int8[2,4,1,1] v = {1, 2, 3, 4, 5, 6, 7, 8}"""
    name = op.split(" ", maxsplit=1)[0].removeprefix("com.microsoft.")
    made = {"MaxPool": "NhwcMaxPool"}.get(name, name)
    shape = SHAPES.get(name, "1,2,4,4")
    inner = "1,4,4,4" if name == "QLinearConcat" else shape
    last = CONV.replace(", w,", ", v,") if name == "QLinearConcat" else CONV
    turned = BETWEEN[op].replace("(n", "(c_QLinearConv_out").replace(" n,", " c_QLinearConv_out,")
    check_pass(
        f"""g ({IMAGE} x) => (uint8[{shape}] y) <{GRID}, {more}, uint8[{inner}] u> {{
            [c] t = {CONV.format("x")}  [o] u = {op}  [d] y = {last.format("u")} }}""",
        AssignChannelsLast(),
        f"""g ({IMAGE} x) => (uint8[{shape}] y)
            <{GRID}, {more}, int64[8] o_turned = {{0, 1, 0, 0, 0, 0, 0, 0}},
             uint8[1,1,1,2] k_turned = {{130, 120}}> {{
            x_turned = Transpose <perm = [0, 2, 3, 1]> (x)
            c_QLinearConv_out = {NHWC.format("x_turned")}
            o_{made}_out = {turned}
            d_QLinearConv_out = {
            NHWC.replace(", w,", ", v,").format(f"o_{made}_out")
            if last != CONV
            else NHWC.format(f"o_{made}_out")
        }
            y = Transpose <perm = [0, 3, 1, 2]> (d_QLinearConv_out) }}""",
        exact=True,
    )


def test_a_transpose_that_is_there_already_is_used() -> None:
    """A model from an NHWC framework: its own Transposes meet ours and go."""
    check_pass(
        f"""g (uint8[1,4,4,2] x) => (uint8[1,4,4,2] y) <{GRID}> {{
            t = Transpose <perm = [0, 3, 1, 2]> (x)  [c] u = {CONV.format("t")}
            [d] v = {CONV.format("u")}  y = Transpose <perm = [0, 2, 3, 1]> (v) }}""",
        AssignChannelsLast(),
        f"""g (uint8[1,4,4,2] x) => (uint8[1,4,4,2] y) <{GRID}> {{
            c_QLinearConv_out = {NHWC.format("x")}
            y = {NHWC.format("c_QLinearConv_out")} }}""",
        exact=True,
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("y = com.microsoft.QLinearAdd (x, s, z, x, s, z, s, z)", id="no op gains"),
        pytest.param("y = Relu (x)", id="a float graph"),
    ],
)
def test_a_region_that_gains_nothing_stays(body: str) -> None:
    kind = "uint8" if "QLinear" in body else "float"
    check_unchanged(
        f"g ({kind}[1,2,4,4] x) => ({kind}[1,2,4,4] y) <{GRID}> {{ {body} }}", AssignChannelsLast()
    )
