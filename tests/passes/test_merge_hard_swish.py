"""Hard-swish in float regions between integer ones."""

from checks import check_pass, check_unchanged

from lucid_fx.passes.merge_hard_swish import MergeHardSwish

GATE = "[h] h = HardSigmoid <alpha = 0.16666667, beta = 0.5> (x)"


def test_a_pair_in_float() -> None:
    check_pass(
        f"g (float[1,8] x) => (float[1,8] y) {{ {GATE}  [m] y = Mul (x, h) }}",
        MergeHardSwish(),
        "g (float[1,8] x) => (float[1,8] y) { y = HardSwish (x) }",
        bound=1e-6,
    )


def test_a_pair_on_codes_stays() -> None:
    for name in "hm":
        check_unchanged(
            f"g (float[1,8] x) => (float[1,8] y) {{ {GATE}  [m] y = Mul (x, h) }}",
            MergeHardSwish(frozenset({name})),
        )


def test_another_slope_stays() -> None:
    check_unchanged(
        """g (float[1,8] x) => (float[1,8] y) {
            h = HardSigmoid <alpha = 0.2, beta = 0.5> (x)  y = Mul (x, h) }""",
        MergeHardSwish(),
    )
