"""Swish written as a product with its gate: EfficientNet, YOLO."""

from checks import check_pass, check_unchanged

from lucid_fx.passes.fuse_swish import FuseSwish


def test_both_orders() -> None:
    for product in ("Mul (x, g)", "Mul (g, x)"):
        check_pass(
            f"g (float[1,8] x) => (float[1,8] y) {{ g = Sigmoid (x)  y = {product} }}",
            FuseSwish(),
            """g (float[1,8] x) => (float[1,8] y) {
                y = com.microsoft.QuickGelu <alpha = 1.0> (x) }""",
            bound=1e-6,
        )


def test_a_gate_that_is_read_elsewhere_stays() -> None:
    check_unchanged(
        """g (float[1,8] x) => (float[1,8] y, float[1,8] z) {
            g = Sigmoid (x)  y = Mul (x, g)  z = Relu (g) }""",
        FuseSwish(),
    )


def test_a_gate_of_another_value_stays() -> None:
    check_unchanged(
        """g (float[1,8] x, float[1,8] v) => (float[1,8] y) {
            g = Sigmoid (v)  y = Mul (x, g) }""",
        FuseSwish(),
    )
