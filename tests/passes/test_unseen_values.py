"""Branches that calibration never ran, empty tensors, masks of infinities: no range is known."""

from checks import model_from

from lucid_fx.passes.choose_integer_regions import Plan, choose_integer_regions
from lucid_fx.passes.unseen_values import leave_unseen
from lucid_fx.target import TARGETS

ONES = ", ".join(["1"] * 144)
CONV = "Conv <pads = [1,1,1,1]>"
IMAGE = "float[1,4,16,16]"
CHAIN = f"""g ({IMAGE} x) => ({IMAGE} y) <float[4,4,3,3] w = {{{ONES}}}> {{
    [c] t = {CONV} (x, w)  [r] u = Relu (t)  [e] y = {CONV} (u, w) }}"""


def plan(text: str, *seen: str) -> tuple[Plan, Plan]:
    """The plan as it was chosen, and what is left of it when only some values were seen."""
    model = model_from(text)
    chosen = choose_integer_regions(model, TARGETS["cpu-avx512vnni"])
    return chosen, leave_unseen(model, chosen, set(seen))


def test_where_everything_was_seen_the_plan_stays() -> None:
    chosen, left = plan(CHAIN, "x", "u", "y")
    assert left is chosen


def test_nodes_around_an_unseen_value_go_back_to_float_and_say_why() -> None:
    _, left = plan(CHAIN, "x", "u")
    assert "c" in left.integer and "e" not in left.integer
    assert left.reasons["e"].startswith("'y' has no range")


def test_a_relu_is_only_absorbed_by_a_producer_that_stays() -> None:
    _, left = plan(CHAIN, "u", "y")
    assert "c" not in left.integer and "r" not in left.absorbed


def test_matrix_products_keep_integer_weights() -> None:
    _, left = plan(
        f"""g ({IMAGE} x) => (float[1,4] y) <float[4,4,3,3] w = {{{ONES}}},
            float[4,4] m = {{{", ".join(["1"] * 16)}}}, int64[2] s = {{1, 4}}> {{
            [c] t = {CONV} (x, w)  [p] u = GlobalAveragePool (t)
            [f] v = Reshape (u, s)  [g] y = Gemm (v, m) }}""",
        "x", "t", "u",
    )  # fmt: skip
    assert "g" in left.dynamic and "g" not in left.integer
