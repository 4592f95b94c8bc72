"""Hard-swish and hard-sigmoid as PP-OCR and MobileNetV3 exports write them out."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.fuse_hard_swish import FuseHardSwish

SCALARS = "<float three = {3}, float zero = {0}, float six = {6}, float sixth = {0.16666667}>"


def test_division_behind_the_product() -> None:
    check_pass(
        f"""g (float[1,2,3,3] x) => (float[1,2,3,3] y) {SCALARS} {{
            a = Add (x, three)  [clip] c = Clip (a, zero, six)
            m = Mul (x, c)  y = Mul (m, sixth) }}""",
        FuseHardSwish(),
        """g (float[1,2,3,3] x) => (float[1,2,3,3] y) {
            clip_HardSigmoid_out = HardSigmoid <alpha = 0.166667, beta = 0.5> (x)
            y = Mul (x, clip_HardSigmoid_out) }""",
    )


def test_division_in_front_of_the_product() -> None:
    check_pass(
        f"""g (float[1,2,3,3] x) => (float[1,2,3,3] y) {SCALARS} {{
            a = Add (three, x)  [clip] c = Clip (a, zero, six)
            m = Mul (c, sixth)  y = Mul (x, m) }}""",
        FuseHardSwish(),
        """g (float[1,2,3,3] x) => (float[1,2,3,3] y) {
            m = HardSigmoid <alpha = 0.166667, beta = 0.5> (x)  y = Mul (x, m) }""",
    )


def test_the_op_is_written_as_gate_and_product() -> None:
    check_pass(
        "g (float[1,2,3,3] x) => (float[1,2,3,3] y) { [hs] y = HardSwish (x) }",
        FuseHardSwish(),
        """g (float[1,2,3,3] x) => (float[1,2,3,3] y) {
            hs_HardSigmoid_out = HardSigmoid <alpha = 0.166667, beta = 0.5> (x)
            y = Mul (x, hs_HardSigmoid_out) }""",
    )


def test_a_gate_that_is_not_divided_keeps_its_height() -> None:
    check_pass(
        f"""g (float[1,2,3,3] x) => (float[1,2,3,3] y) {SCALARS} {{
            a = Add (x, three)  [clip] y = Clip (a, zero, six) }}""",
        FuseHardSwish(),
        """g (float[1,2,3,3] x) => (float[1,2,3,3] y) <float clip_max = {6}> {
            clip_HardSigmoid_out = HardSigmoid <alpha = 0.166667, beta = 0.5> (x)
            y = Mul (clip_HardSigmoid_out, clip_max) }""",
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("a = Add (x, three)  y = Clip (a, three, six)", id="lower bound not zero"),
        pytest.param("a = Add (x, three)  y = Clip (a, zero)", id="no upper bound"),
        pytest.param("a = Add (x, zero)  y = Clip (a, zero, six)", id="no offset: a Relu6"),
        pytest.param("a = Add (x, x)  y = Clip (a, zero, six)", id="no constant is added"),
        pytest.param(
            "a = Add (x, three)  c = Clip (a, zero, six)  y = Mul (a, c)",
            id="the sum has a second reader",
        ),
    ],
)
def test_what_is_no_hard_sigmoid_stays(body: str) -> None:
    check_unchanged(
        f"g (float[1,2,3,3] x) => (float[1,2,3,3] y) {SCALARS} {{ {body} }}", FuseHardSwish()
    )
