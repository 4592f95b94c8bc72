"""Observers beside values of the main graph, of graph inputs, and inside bodies."""

from checks import HEADER, check_pass, check_unchanged

from lucid_fx.native.library import load
from lucid_fx.passes.insert_observers import InsertObservers

LIBRARY = load() is not None
OBSERVED = HEADER.replace("]>", ', "lucid_fx" : 1]>')


def watched(*values: str) -> InsertObservers:
    return InsertObservers({value: {"key": f"test/{value}", "kind": "minmax"} for value in values})


def test_inputs_and_results() -> None:
    check_pass(
        "g (float[2] x) => (float[2] y) { t = Relu (x)  y = Neg (t) }",
        watched("x", "t"),
        f"""{OBSERVED} g (float[2] x) => (float[2] y) {{
            t = Relu (x)
            y = Neg (t)
            t_observed = lucid_fx.Observe <key = "test/t", kind = "minmax"> (t)
            x_observed = lucid_fx.Observe <key = "test/x", kind = "minmax"> (x) }}""",
        exact=True, once=True,
    )  # fmt: skip


def test_inside_a_body() -> None:
    check_pass(
        """g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = a () => (float[2] u) { t = Neg (x)  u = Relu (t) },
                else_branch = b () => (float[2] v) { v = Neg (x) }> }""",
        watched("t"),
        f"""{OBSERVED} g (bool c, float[2] x) => (float[2] y) {{
            y = If (c) <
                then_branch = a () => (float[2] u) {{
                    t = Neg (x)  u = Relu (t)
                    t_observed = lucid_fx.Observe <key = "test/t", kind = "minmax"> (t) }},
                else_branch = b () => (float[2] v) {{ v = Neg (x) }}> }}""",
        exact=True, once=True,
    )  # fmt: skip


def test_what_nobody_asked_for_gets_none() -> None:
    check_unchanged("g (float[2] x) => (float[2] y) { y = Relu (x) }", InsertObservers({}))
