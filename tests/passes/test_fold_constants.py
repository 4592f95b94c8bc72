"""What can be computed before the model runs: arithmetic on weights, shapes, fixed conditions."""

from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.fold_constants import FoldConstants


def test_arithmetic_on_constants() -> None:
    model = check_pass(
        """g (float[2] x) => (float[2] y) <float[2] one = {1, 1}, float[2] two = {2, 3}> {
            [add] c = Add (one, two)  y = Mul (x, c) }""",
        FoldConstants(),
        "g (float[2] x) => (float[2] y) <float[2] c = {3, 4}> { y = Mul (x, c) }",
        exact=True,
    )
    assert ledger_of(model)["add"].status == "fused"


def test_a_shape_that_is_known() -> None:
    check_pass(
        """g (float[2,3] x) => (float[3,2] y) <int64[2] i = {1, 0}> {
            s = Shape (x)  d = Gather (s, i)  y = Reshape (x, d) }""",
        FoldConstants(),
        "g (float[2,3] x) => (float[3,2] y) <int64[2] d = {3, 2}> { y = Reshape (x, d) }",
        exact=True,
    )


def test_an_if_whose_condition_is_known() -> None:
    check_pass(
        """g (float[2] x) => (float[2] y) <bool c = {1}> {
            y = If (c) <
                then_branch = a () => (float[2] u) { u = Neg (x) },
                else_branch = b () => (float[2] v) { v = Relu (x) }> }""",
        FoldConstants(),
        "g (float[2] x) => (float[2] y) { y = Neg (x) }",
        exact=True,
    )


def test_a_shape_that_varies_stays() -> None:
    check_unchanged("g (float[N,3] x) => (int64[2] y) { y = Shape (x) }", FoldConstants())


def test_the_quantization_of_a_weight_stays() -> None:
    """Folded, a model that somebody quantized would grow back to float."""
    check_unchanged(
        """g (float[2] x) => (float[2] y) <int8[2] w = {1, -1}, float s = {0.5}, int8 z = {0}> {
            c = DequantizeLinear (w, s, z)  y = Mul (x, c) }""",
        FoldConstants(),
    )
