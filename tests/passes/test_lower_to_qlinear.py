"""DQ → op → Q as one op of onnxruntime; scales are powers of two, so that equal means equal."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.lower_to_qlinear import LowerToQLinear

GRIDS = "float s = {0.125}, uint8 z = {128}, float s2 = {0.5}, uint8 z2 = {10}"
IMAGE = "uint8[1,2,4,4]"


def decoded(name: str, grid: str = "s, z") -> str:
    return f"{name}_real = DequantizeLinear ({name}, {grid})"


@pytest.mark.parametrize(
    ("op", "lowered", "bound"),
    [
        ("Add (p_real, q_real)", "com.microsoft.QLinearAdd (p, s, z, q, s, z, s2, z2)", 0),
        ("Mul (p_real, q_real)", "com.microsoft.QLinearMul (p, s, z, q, s, z, s2, z2)", 0),
        (
            "Concat <axis = 1> (p_real, q_real)",
            "com.microsoft.QLinearConcat <axis = 1> (s2, z2, p, s, z, q, s, z)",
            0,
        ),
        ("LeakyRelu <alpha = 0.5> (p_real)",
         "com.microsoft.QLinearLeakyRelu <alpha = 0.5> (p, s, z, s2, z2)", 0),
        ("GlobalAveragePool (p_real)",
         "com.microsoft.QLinearGlobalAveragePool (p, s, z, s2, z2)", 1),  # sums in another order
        ("AveragePool <kernel_shape = [2, 2]> (p_real)",
         "com.microsoft.QLinearAveragePool <kernel_shape = [2, 2]> (p, s, z, s2, z2)", 0),
        ("ReduceMean <keepdims = 1> (p_real, axes)",
         "com.microsoft.QLinearGlobalAveragePool (p, s, z, s2, z2)", 1),
    ],
    ids=lambda value: value.split(" ")[0] if isinstance(value, str) else "",
)  # fmt: skip
def test_ops_with_a_grid_of_their_own(op: str, lowered: str, bound: int) -> None:
    shape = {"Concat": "1,4,4,4", "GlobalAveragePool": "1,2,1,1", "ReduceMean": "1,2,1,1",
             "AveragePool": "1,2,3,3"}.get(op.split(" ", maxsplit=1)[0], "1,2,4,4")  # fmt: skip
    axes = ", int64[2] axes = {2, 3}" if "axes" in op else ""
    check_pass(
        f"""g ({IMAGE} p, {IMAGE} q) => (uint8[{shape}] y) <{GRIDS}{axes}> {{
            {decoded("p")} {decoded("q") if "q_real" in op else ""}
            [op] t = {op}  y = QuantizeLinear (t, s2, z2) }}""",
        LowerToQLinear(frozenset({"op"})),
        f"g ({IMAGE} p, {IMAGE} q) => (uint8[{shape}] y) <{GRIDS}> {{ y = {lowered} }}",
        bound=bound,
    )


@pytest.mark.parametrize(
    ("op", "lowered", "shape"),
    [
        ("MaxPool <kernel_shape = [2, 2]> (p_real)", "MaxPool <kernel_shape = [2, 2]> (p)",
         "1,2,3,3"),
        ("Transpose <perm = [0, 2, 3, 1]> (p_real)", "Transpose <perm = [0, 2, 3, 1]> (p)",
         "1,4,4,2"),
        ("Relu (p_real)", "Clip (p, op_min, op_max)", "1,2,4,4"),
        ("Pad (p_real, pads)", "Pad (p, pads, op_fill)", "1,2,5,5"),
    ],
    ids=lambda value: value.split(" ")[0] if "(" in value else "",
)  # fmt: skip
def test_ops_that_share_the_grid_of_their_input(op: str, lowered: str, shape: str) -> None:
    """Real zero is code 128 here: a Relu clips at it, a Pad fills with it."""
    pads = "int64[8] pads = {0, 0, 0, 0, 0, 0, 1, 1}"
    check_pass(
        f"""g ({IMAGE} p) => (uint8[{shape}] y) <{GRIDS}, {pads}> {{
            {decoded("p")}  [op] t = {op}  y = QuantizeLinear (t, s, z) }}""",
        LowerToQLinear(frozenset({"op"})),
        f"""g ({IMAGE} p) => (uint8[{shape}] y)
            <{pads}, uint8 op_min = {{128}}, uint8 op_max = {{255}}, uint8 op_fill = {{128}}> {{
            y = {lowered} }}""",
        exact=True,
    )


def test_conv_with_bias() -> None:
    weights = """int8[3,2,1,1] w = {1, 2, 3, 4, -5, 6}, float ws = {0.25}, int8 wz = {0},
        int32[3] b = {1, 2, 3}, float bs = {0.03125}, int32 bz = {0}"""
    check_pass(
        f"""g ({IMAGE} p) => (uint8[1,3,4,4] y) <{GRIDS}, {weights}> {{
            {decoded("p")} {decoded("w", "ws, wz")} {decoded("b", "bs, bz")}
            [c] t = Conv (p_real, w_real, b_real)  y = QuantizeLinear (t, s2, z2) }}""",
        LowerToQLinear(frozenset({"c"})),
        f"""g ({IMAGE} p) => (uint8[1,3,4,4] y) <{GRIDS}, {weights}> {{
            y = QLinearConv (p, s, z, w, ws, wz, s2, z2, b) }}""",
        exact=True,
    )


MATRIX = "int8[4,3] w = {1, 2, 3, 4, -5, 6, 7, 8, 9, 1, 1, 1}, float ws = {0.25}, int8 wz = {0}"


@pytest.mark.parametrize(
    ("op", "lowered"),
    [
        ("MatMul (p_real, w_real)", "QLinearMatMul (p, s, z, w, ws, wz, s2, z2)"),
        ("Gemm (p_real, w_real)",
         "com.microsoft.QGemm <alpha = 1.0, transA = 0, transB = 0>"
         " (p, s, z, w, ws, wz, , s2, z2)"),
    ],
)  # fmt: skip
def test_matrix_products_between_codes(op: str, lowered: str) -> None:
    check_pass(
        f"""g (uint8[2,4] p) => (uint8[2,3] y) <{GRIDS}, {MATRIX}> {{
            {decoded("p")} {decoded("w", "ws, wz")}
            [m] t = {op}  y = QuantizeLinear (t, s2, z2) }}""",
        LowerToQLinear(frozenset({"m"})),
        f"g (uint8[2,4] p) => (uint8[2,3] y) <{GRIDS}, {MATRIX}> {{ y = {lowered} }}",
        exact=True,
    )


def test_matrix_products_that_are_read_as_real_values() -> None:
    check_pass(
        f"""g (uint8[2,4] p) => (float[2,3] y) <{GRIDS}, {MATRIX}> {{
            {decoded("p")} {decoded("w", "ws, wz")}  [m] y = MatMul (p_real, w_real) }}""",
        LowerToQLinear(frozenset({"m"})),
        f"""g (uint8[2,4] p) => (float[2,3] y) <{GRIDS}, {MATRIX}> {{
            y = com.microsoft.MatMulIntegerToFloat (p, w, s, ws, z, wz) }}""",
    )


def test_clip_on_codes_raises_opset_11() -> None:
    """Clip and MaxPool take 8-bit integers from opset 12 on."""
    old = '<ir_version: 7, opset_import: ["" : 11, "com.microsoft" : 1]>'
    check_pass(
        f"""{old} g ({IMAGE} p) => (uint8[1,2,4,4] y) <{GRIDS}> {{
            {decoded("p")}  [r] t = Relu (p_real)  y = QuantizeLinear (t, s, z) }}""",
        LowerToQLinear(frozenset({"r"})),
        f"""{old.replace("11", "12")} g ({IMAGE} p) => (uint8[1,2,4,4] y)
            <uint8 r_min = {{128}}, uint8 r_max = {{255}}> {{ y = Clip (p, r_min, r_max) }}""",
        exact=True,
    )


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            f"{decoded('p')} [other] t = Relu (p_real)  y = QuantizeLinear (t, s, z)",
            id="not chosen, although it stands between DQ and Q",
        ),
        pytest.param(
            f"{decoded('p')} [op] t = Relu (p_real)  u = Neg (t)  v = Add (t, u)"
            "  y = QuantizeLinear (v, s, z)",
            id="its result is read as real values",
        ),
        pytest.param(
            f"{decoded('p')} n = Neg (p_real)  [op] t = Relu (n)  y = QuantizeLinear (t, s, z)",
            id="its input has no codes",
        ),
    ],
)
def test_what_has_no_codes_on_both_sides_stays(body: str) -> None:
    check_unchanged(
        f"g ({IMAGE} p) => (uint8[1,2,4,4] y) <{GRIDS}> {{ {body} }}",
        LowerToQLinear(frozenset({"op"})),
    )
