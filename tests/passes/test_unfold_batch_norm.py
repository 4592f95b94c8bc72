"""Batch normalisation with nothing linear in front: pre-activation networks, input norms."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.unfold_batch_norm import UnfoldBatchNorm

NORM = "float[2] g = {1, 2}, float[2] b = {0, 1}, float[2] m = {0.5, 0}, float[2] v = {1, 4}"


@pytest.mark.parametrize(("shape", "along"), [("1,2,3,3", "2,1,1"), ("4,2,3", "2,1"), ("4,2", "2")])
def test_it_becomes_mul_and_add(shape: str, along: str) -> None:
    check_pass(
        f"""g (float[{shape}] x) => (float[{shape}] y) <{NORM}> {{
            [n] y = BatchNormalization <epsilon = 0.0> (x, g, b, m, v) }}""",
        UnfoldBatchNorm(),
        f"""g (float[{shape}] x) => (float[{shape}] y)
            <float[{along}] n_factor = {{1, 1}}, float[{along}] n_offset = {{-0.5, 1}}> {{
            [n_Mul] n_Mul_out = Mul (x, n_factor)  [n_Add] y = Add (n_Mul_out, n_offset) }}""",
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            f"""g (float[1,2,3,3] x) => (float[1,2,3,3] y) <{NORM}> {{
                y, p, q = BatchNormalization <training_mode = 1> (x, g, b, m, v) }}""",
            id="training",
        ),
        pytest.param(
            """g (float[1,2,3,3] x, float[2] g, float[2] b, float[2] m, float[2] v)
                => (float[1,2,3,3] y) { y = BatchNormalization (x, g, b, m, v) }""",
            id="statistics that are computed",
        ),
    ],
)
def test_what_is_not_constant_stays(text: str) -> None:
    check_unchanged(text, UnfoldBatchNorm())
