"""Each integer operator in plain numpy against onnxruntime, on random codes.

Equal, or within one code where onnxruntime rounds in another order (said at the case).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import model_from
from numpy.typing import NDArray

from lucid_fx.ir.saving import save_model
from lucid_fx.runtime.reference import evaluate
from lucid_fx.runtime.session import Session

SEEDS = range(4)
GRIDS = """float s = {0.0173}, uint8 z = {131}, float s2 = {0.0371}, uint8 z2 = {3},
    float s3 = {0.0213}, uint8 z3 = {117}"""


def compare(text: str, seed: int, codes: int = 0, **fixed: NDArray[Any]) -> None:
    """Random codes of the full range for each input; results at most ``codes`` apart."""
    model, rng = model_from(text), np.random.default_rng(seed)
    feed: dict[str, NDArray[Any]] = {}
    for value in model.graph.inputs:
        dtype, shape = value.dtype.numpy(), [int(dim) for dim in value.shape]  # type: ignore
        if dtype == np.float32:
            feed[value.name] = rng.standard_normal(shape).astype(dtype)  # type: ignore[index]
        elif dtype == np.bool_:
            feed[value.name] = rng.random(shape) < 0.5  # type: ignore[index]
        else:
            limits = np.iinfo(dtype)
            feed[value.name] = rng.integers(limits.min, limits.max + 1, shape, dtype=dtype)  # type: ignore
    feed |= fixed
    wanted = dict(zip([v.name for v in model.graph.outputs], Session(model).run(feed), strict=True))
    for name, found in evaluate(model, feed).items():
        assert found.dtype == wanted[name].dtype and found.shape == wanted[name].shape
        if found.dtype == np.float32:
            np.testing.assert_allclose(found, wanted[name], rtol=1e-5, atol=1e-5)
        else:
            apart = np.abs(found.astype(np.int64) - wanted[name].astype(np.int64))
            assert apart.max() <= codes, f"{apart.max()} codes apart"
            assert (apart > 0).mean() <= 0.02, "more than stray roundings"


def small(shape: tuple[int, ...], seed: int, signed: bool) -> str:
    """Weight codes that cannot saturate in 16-bit sums, as text."""
    rng = np.random.default_rng(seed)
    return ", ".join(map(str, rng.integers(-60 if signed else 0, 61, int(np.prod(shape))).tolist()))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_binary(op: str, seed: int) -> None:
    """onnxruntime adds the scaled operands with fused multiply-adds: one code in a tie."""
    compare(
        f"""g (uint8[2,3,5] a, uint8[3,1] b) => (uint8[2,3,5] y) <{GRIDS}> {{
            y = com.microsoft.{op} (a, s, z, b, s2, z2, s3, z3) }}""",
        seed, codes=1,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu <alpha = 0.1>"])
def test_curves(op: str, seed: int) -> None:
    """onnxruntime's sigmoid is a rational approximation."""
    compare(
        f"""g (uint8[2,300] x) => (uint8[2,300] y) <{GRIDS}> {{
            y = com.microsoft.{op} (x, s, z, s3, z3) }}""",
        seed, codes=1 if "Sigmoid" in op else 0,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_concat_and_where(seed: int) -> None:
    compare(
        f"""g (uint8[2,3,5] a, uint8[2,4,5] b) => (uint8[2,7,5] y) <{GRIDS}> {{
            y = com.microsoft.QLinearConcat <axis = 1> (s3, z3, a, s, z, b, s2, z2) }}""",
        seed,
    )
    compare(
        f"""g (bool[3,5] c, uint8[3,5] a, uint8[1,5] b) => (uint8[3,5] y) <{GRIDS}> {{
            y = com.microsoft.QLinearWhere (c, a, s, z, b, s2, z2, s3, z3) }}""",
        seed,
    )


POOLS = [
    ("kernel_shape = [2,2], strides = [2,2]", (3, 2)),
    ("kernel_shape = [3,3], pads = [1,1,1,1]", (6, 5)),
    ("kernel_shape = [3,2], pads = [1,0,1,1], strides = [2,1]", (3, 5)),
    ("kernel_shape = [2,2], strides = [2,2], ceil_mode = 1", (3, 3)),
]


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(("window", "size"), POOLS)
@pytest.mark.parametrize("included", [0, 1])
def test_average_pool(window: str, size: tuple[int, int], included: int, last: int) -> None:
    """onnxruntime adds real values in float32, we add codes exactly: one code in a tie."""
    height, width = size
    shapes = ("2,6,5,3", f"2,{height},{width},3") if last else ("2,3,6,5", f"2,3,{height},{width}")
    compare(
        f"""g (uint8[{shapes[0]}] x) => (uint8[{shapes[1]}] y) <{GRIDS}> {{
            y = com.microsoft.QLinearAveragePool <{window}, count_include_pad = {included},
                channels_last = {last}> (x, s, z, s3, z3) }}""",
        seed=0, codes=1,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("last", [0, 1])
def test_global_average_pool(last: int, seed: int) -> None:
    shapes = ("2,6,5,3", "2,1,1,3") if last else ("2,3,6,5", "2,3,1,1")
    compare(
        f"""g (uint8[{shapes[0]}] x) => (uint8[{shapes[1]}] y) <{GRIDS}> {{
            y = com.microsoft.QLinearGlobalAveragePool <channels_last = {last}>
                (x, s, z, s3, z3) }}""",
        seed,
    )


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(("window", "size"), POOLS)
def test_max_pool(window: str, size: tuple[int, int], kind: str) -> None:
    height, width = size
    compare(
        f"""g ({kind}[2,3,6,5] x) => ({kind}[2,3,{height},{width}] y) {{
            y = MaxPool <{window}> (x) }}""",
        seed=0,
    )
    compare(
        f"""g ({kind}[2,6,5,3] x) => ({kind}[2,{height},{width},3] y) {{
            y = com.microsoft.NhwcMaxPool <{window}> (x) }}""",
        seed=0,
    )


CONVS = [
    pytest.param(4, 6, 1, "pads = [1,1,1,1]", (6, 5), id="dense"),
    pytest.param(4, 6, 2, "pads = [1,1,1,1], strides = [2,1]", (3, 5), id="grouped, strided"),
    pytest.param(4, 4, 4, "pads = [1,1,1,1]", (6, 5), id="depthwise"),
    pytest.param(4, 8, 4, "pads = [2,2,2,2], dilations = [2,2]", (6, 5), id="dilated, twice wide"),
    pytest.param(3, 5, 1, 'auto_pad = "SAME_LOWER", strides = [2,2]', (3, 3), id="auto_pad"),
]


@pytest.mark.parametrize("weights", ["int8", "uint8"])
@pytest.mark.parametrize(("inner", "outer", "group", "window", "size"), CONVS)
@pytest.mark.parametrize("last", [0, 1])
def test_conv(
    inner: int, outer: int, group: int, window: str, size: tuple[int, int], last: int, weights: str
) -> None:
    """Weight grids by channel, with zero points where the codes are unsigned."""
    shape = (outer, inner // group, 3, 3)
    scales = ", ".join(str(0.001 * (n + 1)) for n in range(outer))
    zeros = ", ".join(str(n if weights == "uint8" else 0) for n in range(outer))
    given = (
        f"{weights}[{','.join(map(str, shape))}] w = {{{small(shape, 0, weights == 'int8')}}},"
        f" float[{outer}] sw = {{{scales}}}, {weights}[{outer}] zw = {{{zeros}}},"
        f" int32[{outer}] b = {{{', '.join(str(50 * n - 100) for n in range(outer))}}}"
    )
    height, width = size
    images = (f"2,6,5,{inner}", f"2,{height},{width},{outer}") if last else (
        f"2,{inner},6,5", f"2,{outer},{height},{width}")  # fmt: skip
    op = f"com.microsoft.QLinearConv <channels_last = 1, group = {group}, {window}>" if last else (
        f"QLinearConv <group = {group}, {window}>")  # fmt: skip
    compare(
        f"""g (uint8[{images[0]}] x) => (uint8[{images[1]}] y) <{GRIDS}, {given}> {{
            y = {op} (x, s, z, w, sw, zw, s3, z3, b) }}""",
        seed=0,
    )


MATRIX = f"int8[5,4] w = {{{small((5, 4), 1, True)}}}, float[4] sw = {{0.01, 0.02, 0.003, 0.04}}, int8[4] zw = {{0, 0, 0, 0}}"  # noqa: E501


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("QLinearMatMul (x, s, z, w, sw, zw, s3, z3)", "uint8"),
        ("com.microsoft.MatMulIntegerToFloat (x, w, s, sw, z, zw, real)", "float"),
        ("com.microsoft.QGemm <alpha = 1.0, transA = 0, transB = 0>"
         " (x, s, z, w, sw, zw, b, s3, z3)", "uint8"),
        ("com.microsoft.QGemm <alpha = 0.5, transA = 0, transB = 0> (x, s, z, w, sw, zw, b)",
         "float"),
    ],
)  # fmt: skip
def test_matrix_products(op: str, kind: str, seed: int) -> None:
    compare(
        f"""g (uint8[3,5] x) => ({kind}[3,4] y)
            <{GRIDS}, {MATRIX}, int32[4] b = {{100, -200, 300, 0}},
             float[4] real = {{0.5, 1, -1, 0}}> {{ y = {op} }}""",
        seed,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_products_quantized_at_run_time(seed: int) -> None:
    compare(
        f"""g (float[3,5] x) => (float[3,4] y) <{MATRIX}, float[4] real = {{0.5, 1, -1, 0}}> {{
            y = com.microsoft.DynamicQuantizeMatMul (x, w, sw, zw, real) }}""",
        seed,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_encode_and_decode_of_onnxruntime(seed: int) -> None:
    grid = "float[3] s = {0.01, 0.02, 0.5}, uint8[3] z = {0, 128, 7}"
    compare(
        f"""g (float[2,3,40] x) => (uint8[2,3,40] y) <{grid}> {{
            y = com.microsoft.QuantizeLinear <axis = 1> (x, s, z) }}""",
        seed,
    )
    compare(
        f"""g (uint8[2,3,40] x) => (float[2,3,40] y) <{grid}> {{
            y = com.microsoft.DequantizeLinear <axis = 1> (x, s, z) }}""",
        seed,
    )


def test_ties_go_to_even_and_ends_saturate() -> None:
    model = model_from(
        """g (float[6] x) => (uint8[6] y) <float s = {1}, uint8 z = {1}> {
            y = com.microsoft.QuantizeLinear (x, s, z) }"""
    )
    x = np.array([0.5, 1.5, 2.5, -0.5, 1e9, -1e9], np.float32)
    assert evaluate(model, {"x": x})["y"].tolist() == [1, 3, 3, 1, 255, 0]


def test_bodies_and_files(tmp_path: Path) -> None:
    """The operators are known inside an If, and a path will do."""
    model = model_from(
        f"""g (bool c, uint8[4] x) => (uint8[4] y) <{GRIDS}> {{
            y = If (c) <
                then_branch = a () => (uint8[4] u) {{
                    u = com.microsoft.QLinearAdd (x, s, z, x, s, z, s2, z2) }},
                else_branch = b () => (uint8[4] v) {{ v = Identity (x) }}> }}"""
    )
    save_model(model, tmp_path / "model.onnx")
    feed = {"c": np.array(True), "x": np.array([0, 100, 200, 255], np.uint8)}
    wanted = Session(model).run(feed)[0]
    assert evaluate(tmp_path / "model.onnx", feed)["y"].tolist() == wanted.tolist()
