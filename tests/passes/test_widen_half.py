"""Half precision outside, float32 inside."""

import numpy as np
import pytest
from checks import check_pass, check_unchanged, ops

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.widen_half import WidenHalf

W = "<float16[2,2] w = {1, 2, 3, 4}>"


def test_casts_stand_at_the_rim_only() -> None:
    check_pass(
        f"g (float16[N,2] x) => (float16[N,2] y) {W} {{ t = MatMul (x, w) y = Relu (t) }}",
        WidenHalf(),
        """g (float16[N,2] x) => (float16[N,2] y) <float[2,2] w> {
            x_wide = Cast <to = 1> (x) t = MatMul (x_wide, w)
            y_wide = Relu (t) y = Cast <to = 10> (y_wide) }""",
        bound=0.02,
    )


def test_a_table_keeps_its_type() -> None:
    check_pass(
        f"""g (int64[3] i) => (float16[3,2] y) {W} {{
            t = Gather (w, i) u = Identity (t) y = MatMul (u, u2) }}""".replace(
            W, "<float16[2,2] w = {1, 2, 3, 4}, float16[2,2] u2 = {1, 0, 0, 1}>"
        ),
        WidenHalf(),
        """g (int64[3] i) => (float16[3,2] y) <float16[2,2] w = {1,2,3,4}, float[2,2] u2> {
            t = Gather (w, i) t_wide = Cast <to = 1> (t) u = Identity (t_wide)
            y_wide = MatMul (u, u2) y = Cast <to = 10> (y_wide) }""",
        feeds={"i": np.array([0, 1, 1])},
        bound=0.02,
    )


def test_types_named_in_attributes_and_bodies() -> None:
    model = check_pass(
        f"""g (float[N,2] x, bool c) => (float16[N,2] y) {W} {{ h = Cast <to = 10> (x)
            t = MatMul (h, w) y = If (c) <then_branch = a () => (float16[N,2] p) {{ p = Relu (t) }},
            else_branch = b () => (float16[N,2] q) {{ q = Neg (t) }}> }}""",
        WidenHalf(),
        """g (float[N,2] x, bool c) => (float16[N,2] y) <float[2,2] w> { h = Cast <to = 1> (x)
            t = MatMul (h, w)
            y_wide = If (c) <then_branch = a () => (float[N,2] p) { p = Relu (t) },
            else_branch = b () => (float[N,2] q) { q = Neg (t) }> y = Cast <to = 10> (y_wide) }""",
        bound=0.02,
    )
    assert ops(model) == ["Cast", "MatMul", "If", "Cast"]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("g (float[N,2] x) => (float[N,2] y) { y = Relu (x) }", None),
        ("g (float16[N,2] x) => (float16[N,2] y) { y = Relu (x) }", None),
        (f"""<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
            g (float16[N,2] x) => (float16[N,2] y) {W} {{ t = own.Op (x) y = MatMul (x, w) }}""",
         "own.Op is not known"),
    ],
)  # fmt: skip
def test_what_gains_nothing_or_is_not_known_stays(text: str, note: str | None) -> None:
    model = check_unchanged(text, WidenHalf())
    assert note is None or note in ledger_of(model).notes[0]
