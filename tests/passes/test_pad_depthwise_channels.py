"""Depthwise convolutions with a channel count that fills no whole vectors."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.pad_depthwise_channels import PadDepthwiseChannels

WEIGHTS = """float[3,2,1,1] w = {1, 2, 3, 4, 5, 6}, float[3] b = {1, 2, 3},
    float[3,1,1,1] d = {1, 2, 3}, float[1,3,1,1] v = {1, 2, 3}, float[1,3,1,1] s = {2, 3, 4}"""
PADDED = """float[4,2,1,1] w_padded = {1, 2, 3, 4, 5, 6, 0, 0}, float[4] b_padded = {1, 2, 3, 0},
    float[4,1,1,1] d_padded = {1, 2, 3, 0}, float[1,4,1,1] v_padded = {1, 2, 3, 0}"""
TO_FOURS = PadDepthwiseChannels(frozenset({"dw"}), width=4)
IN, OUT = "float[1,2,3,3] x", "float[1,1,3,3] y"


def test_between_two_dense_convs() -> None:
    model = check_pass(
        f"""g ({IN}) => ({OUT}) <{WEIGHTS}> {{
            c = Conv (x, w, b)  [dw] t = Conv <group = 3> (c, d)  y = Conv (t, v) }}""",
        TO_FOURS,
        f"""g ({IN}) => ({OUT}) <{PADDED}> {{
            c = Conv (x, w_padded, b_padded)  [dw] t = Conv <group = 4> (c, d_padded)
            y = Conv (t, v_padded) }}""",
    )
    assert ledger_of(model).notes == ["dw: 3 channels padded to 4, whole vectors of the kernel"]


def test_a_gated_block() -> None:
    """Squeeze and excitation: a gate of zero need not be zero, but the weight behind it is."""
    check_pass(
        f"""g ({IN}) => ({OUT}) <{WEIGHTS}> {{
            c = Conv (x, w, b)  [dw] t = Conv <group = 3> (c, d)
            m = Mul (t, s)  p = GlobalAveragePool (m)  h = HardSigmoid (p)  q = Mul (m, h)
            y = Conv (q, v) }}""",
        TO_FOURS,
        f"""g ({IN}) => ({OUT}) <{PADDED}, float[1,4,1,1] s_padded = {{2, 3, 4, 0}}> {{
            c = Conv (x, w_padded, b_padded)  [dw] t = Conv <group = 4> (c, d_padded)
            m = Mul (t, s_padded)  p = GlobalAveragePool (m)  h = HardSigmoid (p)  q = Mul (m, h)
            y = Conv (q, v_padded) }}""",
    )


@pytest.mark.parametrize(
    ("body", "graph_pass"),
    [
        pytest.param(
            "c = Conv (x, w, b)  [dw] t = Conv <group = 3> (c, d)  y = Conv (t, v)",
            PadDepthwiseChannels(frozenset({"another"}), 4),
            id="not chosen",
        ),
        pytest.param(
            "c = Conv (x, w, b)  [dw] t = Conv <group = 3> (c, d)  y = Conv (t, v)",
            PadDepthwiseChannels(frozenset({"dw"}), 3),
            id="whole vectors already",
        ),
        pytest.param(
            "c = Conv (x, w, b)  [dw] t = Conv <group = 3> (c, d)  y = Conv (t, v)",
            PadDepthwiseChannels(frozenset({"dw"}), 16),
            id="most of the vector would be padding",
        ),
        pytest.param(
            "c = Conv (x, w, b)  u = Concat <axis = 1> (c, c)  e, f = Split <axis = 1> (u)"
            "  [dw] t = Conv <group = 3> (e, d)  y = Conv (t, v)",
            TO_FOURS,
            id="its channels come from a Split",
        ),
        pytest.param(
            "c = Conv (x, w, b)  [dw] t = Conv <group = 3> (c, d)  y = ReduceSum <keepdims = 1>"
            " (t, axis)",
            TO_FOURS,
            id="its channels are summed",
        ),
    ],
)
def test_what_cannot_grow_or_need_not_stays(body: str, graph_pass: PadDepthwiseChannels) -> None:
    body = body.replace("Split <axis = 1>", "Split <axis = 1, num_outputs = 2>")
    check_unchanged(
        f"g ({IN}) => ({OUT}) <{WEIGHTS}, int64[1] axis = {{1}}> {{ {body} }}", graph_pass
    )


def test_a_depthwise_conv_on_a_graph_input_stays() -> None:
    check_unchanged(
        f"""g (float[1,3,3,3] x) => ({OUT}) <{WEIGHTS}> {{
            [dw] t = Conv <group = 3> (x, d)  y = Conv (t, v) }}""",
        TO_FOURS,
    )
