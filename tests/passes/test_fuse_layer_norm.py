"""LayerNormalization, written out as exporters do below operator set 17."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.fuse_layer_norm import FuseLayerNorm

OLD = '<ir_version: 8, opset_import: ["" : 12]>'
CONSTANTS = "float two = {2}, float eps = {0.00001}, float[4] w = {1,2,3,4}, float[4] b = {0,1,0,1}"


def norm(
    *, axes: str = "-1", square: str = "Pow (d, two)", tail: str = "g = Mul (n, w) y = Add (b, g)",
    head: str = "", outputs: str = "float[2,3,4] y",
) -> str:  # fmt: skip
    return f"""{OLD} g (float[2,3,4] x) => ({outputs}) <{CONSTANTS}> {{
        {head} m = ReduceMean <axes = [{axes}]> (x) d = Sub (x, m) q = {square}
        v = ReduceMean <axes = [{axes}]> (q) e = Add (v, eps) s = Sqrt (e) n = Div (d, s)
        {tail} }}"""


def fused(inputs: str, output: str = "y", before: str = "", after: str = "") -> str:
    return f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3,4] x) => (float[2,3,4] y) <{CONSTANTS}> {{ {before}
        {output} = LayerNormalization <axis = -1, epsilon = 0.00001> ({inputs}) {after} }}"""


@pytest.mark.parametrize("axes", ["-1", "2"])
@pytest.mark.parametrize("square", ["Pow (d, two)", "Mul (d, d)"])
def test_the_spellings_of_a_square(axes: str, square: str) -> None:
    check_pass(norm(axes=axes, square=square), FuseLayerNorm(), fused("x, w, b"))


def test_without_an_offset() -> None:
    check_pass(norm(tail="y = Mul (w, n)"), FuseLayerNorm(), fused("x, w"))


def test_a_difference_that_is_computed_twice() -> None:
    square = "Pow (d2, two)"
    text = norm(square=square).replace("q = Pow", "d2 = Sub (x, m) q = Pow")
    check_pass(text, FuseLayerNorm(), fused("x, w, b"))


def test_axes_as_an_input() -> None:
    text = norm().replace("12", "18").replace("<axes = [-1]> (x)", "(x, last)")
    text = text.replace("<axes = [-1]> (q)", "(q, last)")
    text = text.replace("<float", "<int64[1] last={-1}, float")
    check_pass(text, FuseLayerNorm(), fused("x, w, b").replace('"" : 17', '"" : 18'))


def test_ops_around_it_are_written_in_the_newer_form() -> None:
    tail = "t = Unsqueeze <axes = [0]> (a) y = Squeeze <axes = [0]> (t)"
    axes = "<int64[1] Unsqueeze_t_axes, int64[1] Squeeze_y_axes, float two"
    after = "t = Unsqueeze (a, Unsqueeze_t_axes) y = Squeeze (t, Squeeze_y_axes)"
    check_pass(
        norm(tail=f"g = Mul (n, w) a = Add (b, g) {tail}"),
        FuseLayerNorm(),
        fused("x, w, b", "a", after=after).replace("<float two", axes),
    )


@pytest.mark.parametrize(
    "text",
    [
        norm(axes="1,2"),  # over more than the last axis
        norm(axes="1"),
        norm(square="Mul (d, x)"),  # no variance
        norm(tail="y = Add (n, b)"),  # no factor
        norm(outputs="float[2,3,4] y, float[2,3,1] s"),  # the deviation is wanted, too
    ],
)
def test_what_is_no_norm_stays(text: str) -> None:
    check_unchanged(text, FuseLayerNorm())


def test_an_operator_set_that_cannot_be_raised_is_told() -> None:
    text = norm(tail="g = Mul (n, w) a = Add (b, g) y = Softmax <axis = 1> (a)")
    model = check_unchanged(text, FuseLayerNorm())
    assert "Softmax is over all axes from 1 on" in ledger_of(model)["Add_a"].reason
