"""Constants wherever exporters put them: nodes of every attribute kind, bodies."""

from checks import check_pass, check_unchanged

from lucid_fx.passes.lift_constants import LiftConstants


def test_constants_of_bodies_move_to_the_main_graph() -> None:
    check_pass(
        """g (bool c, float[2] x) => (float[2] y) {
            k = Constant <value = float[2] {1, 2}> ()
            y = If (c) <
                then_branch = a () => (float[2] u) <float[2] w = {3, 4}> { u = Add (k, w) },
                else_branch = b () => (float[2] v) {
                    w = Constant <value_floats = [5.0, 6.0]> ()  v = Mul (x, w) }> }""",
        LiftConstants(),
        """g (bool c, float[2] x) => (float[2] y)
            <float[2] k = {1, 2}, float[2] w = {3, 4}, float[2] w_1 = {5, 6}> {
            y = If (c) <
                then_branch = a () => (float[2] u) { u = Add (k, w) },
                else_branch = b () => (float[2] v) { v = Mul (x, w_1) }> }""",
        exact=True,
    )


def test_every_form_of_a_number_is_lifted() -> None:
    check_pass(
        """g (float[2] x) => (float[2] y, int64[1] z) {
            a = Constant <value_float = 2.0> ()
            i = Constant <value_ints = [3]> ()
            j = Constant <value_int = 4> ()
            y = Mul (x, a)  z = Add (i, j) }""",
        LiftConstants(),
        """g (float[2] x) => (float[2] y, int64[1] z)
            <float a = {2}, int64[1] i = {3}, int64 j = {4}> { y = Mul (x, a)  z = Add (i, j) }""",
        exact=True,
    )


def test_a_constant_that_is_an_output_stays() -> None:
    check_unchanged(
        "g () => (float[2] y) { y = Constant <value = float[2] {1, 2}> () }", LiftConstants()
    )
