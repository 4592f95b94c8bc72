"""Nodes that do nothing at inference."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.eliminate_identity import EliminateIdentity


def test_identity_dropout_and_cast_to_the_same_type() -> None:
    check_pass(
        """g (float[2] x) => (float[2] z) {
            y = Identity (x)  d = Dropout (y)  c = Cast <to = 1> (d)  z = Relu (c) }""",
        EliminateIdentity(),
        "g (float[2] x) => (float[2] z) { z = Relu (x) }",
        exact=True,
    )


def test_the_name_of_a_graph_output_stays() -> None:
    check_pass(
        "g (float[2] x) => (float[2] y) { t = Relu (x)  y = Identity (t) }",
        EliminateIdentity(),
        "g (float[2] x) => (float[2] y) { y = Relu (x) }",
        exact=True,
    )


@pytest.mark.parametrize(
    ("there", "back"),
    [("<perm = [0, 2, 1]>", "<perm = [0, 2, 1]>"), ("<perm = [1, 2, 0]>", "<perm = [2, 0, 1]>"),
     ("", "")],
)  # fmt: skip
def test_a_transpose_there_and_back(there: str, back: str) -> None:
    check_pass(
        f"""g (float[2,3,4] x) => (float[2,3,4] y) {{
            r = Relu (x)  t = Transpose {there} (r)  u = Transpose {back} (t)  y = Neg (u) }}""",
        EliminateIdentity(),
        f"""g (float[2,3,4] x) => (float[2,3,4] y) {{
            r = Relu (x)  t = Transpose {there} (r)  y = Neg (r) }}""",
        exact=True,
    )


def test_transposes_that_turn_further_stay() -> None:
    check_unchanged(
        """g (float[2,3,4] x) => (float[4,2,3] y) {
            t = Transpose <perm = [1, 2, 0]> (x)  y = Transpose <perm = [1, 2, 0]> (t) }""",
        EliminateIdentity(),
    )


def test_a_value_that_is_two_outputs_keeps_both_names() -> None:
    check_unchanged(
        "g (float[2] x) => (float[2] y, float[2] z) { y = Relu (x)  z = Identity (y) }",
        EliminateIdentity(),
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "g (float[2] x) => (float[2] y) { y = Identity (x) }", id="input straight to output"
        ),
        pytest.param(
            """g (bool c, float[2] x) => (float[2] y) {
                t = Relu (x)
                y = If (c) <
                    then_branch = a () => (float[2] u) { u = Identity (t) },
                    else_branch = b () => (float[2] v) { v = Neg (t) }> }""",
            id="a body must make its own output",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y, bool[2] z) { d, z = Dropout (x)  y = Relu (d) }",
            id="the mask is used",
        ),
        pytest.param(
            "g (float[2] x) => (float[2] y) <float r = {0.5}, bool t = {1}>"
            " { d = Dropout (x, r, t)  y = Relu (d) }",
            id="training",
        ),
        pytest.param(
            "g (float[2] x) => (float16[2] y) { y = Cast <to = 10> (x) }", id="another type"
        ),
    ],
)
def test_what_changes_something_stays(text: str) -> None:
    model = check_unchanged(text, EliminateIdentity())
    assert "fused" not in ledger_of(model).counts()
