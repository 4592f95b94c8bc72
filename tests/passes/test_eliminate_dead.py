"""Nodes and weights that no output depends on: training heads, folded weights."""

from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.eliminate_dead import EliminateDead


def test_an_unused_branch_goes_with_its_weight() -> None:
    model = check_pass(
        """g (float[2] x, float[2] unused) => (float[2] y) <float[2] w = {1, 2}> {
            t = Relu (x)  [head] u = Mul (t, w)  y = Add (x, x) }""",
        EliminateDead(),
        "g (float[2] x, float[2] unused) => (float[2] y) { y = Add (x, x) }",
        exact=True,
    )
    assert not model.graph.initializers
    assert ledger_of(model)["head"].reason == "no output depends on it"


def test_inside_a_body() -> None:
    check_pass(
        """g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = a () => (float[2] u) { d = Neg (x)  u = Relu (x) },
                else_branch = b () => (float[2] v) { v = Neg (x) }> }""",
        EliminateDead(),
        """g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = a () => (float[2] u) { u = Relu (x) },
                else_branch = b () => (float[2] v) { v = Neg (x) }> }""",
        exact=True,
    )


def test_what_only_an_unused_if_reads_goes_with_it() -> None:
    model = check_pass(
        """g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            t = Mul (x, w)
            u = If (c) <
                then_branch = a () => (float[2] p) { p = Relu (t) },
                else_branch = b () => (float[2] q) { q = Neg (x) }>
            y = Relu (x) }""",
        EliminateDead(),
        "g (bool c, float[2] x) => (float[2] y) { y = Relu (x) }",
        exact=True,
    )
    assert len(model.graph.inputs[1].uses()) == 1  # the dead body does not count


def test_what_a_body_reads_from_outside_stays() -> None:
    check_unchanged(
        """g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
            t = Mul (x, w)
            y = If (c) <
                then_branch = a () => (float[2] u) { u = Relu (t) },
                else_branch = b () => (float[2] v) { v = Neg (x) }> }""",
        EliminateDead(),
    )
