"""MatMul and Add of a vector as Gemm."""

import pytest
from checks import check_pass, check_unchanged

from lucid_fx.passes.fuse_matmul_add import FuseMatMulAdd

WEIGHTS = "float[3,2] w = {1,2,3,4,5,6}, float[2] b = {1,2}"


@pytest.mark.parametrize("add", ["Add (t, b)", "Add (b, t)"])
def test_matrices(add: str) -> None:
    check_pass(
        f"g (float[N,3] x) => (float[N,2] y) <{WEIGHTS}> {{ [fc] t = MatMul (x, w) y = {add} }}",
        FuseMatMulAdd(),
        f"g (float[N,3] x) => (float[N,2] y) <{WEIGHTS}> {{ y = Gemm (x, w, b) }}",
    )


@pytest.mark.parametrize(
    ("data", "outputs", "more", "addend"),
    [
        ("float[M,N,3] x", "float[M,N,2] y", "", "b"),
        ("float[N,3] x", "float[N,2] y, float[N,2] t", "", "b"),
        ("float[N,3] x, float[2] c", "float[N,2] y", "", "c"),
        ("float[1,3] x", "float[2,2] y", ", float[2,2] d = {1,2,3,4}", "d"),
    ],
)
def test_higher_ranks_and_other_addends_stay(
    data: str, outputs: str, more: str, addend: str
) -> None:
    body = f"t = MatMul (x, w) y = Add (t, {addend})"
    check_unchanged(f"g ({data}) => ({outputs}) <{WEIGHTS}{more}> {{ {body} }}", FuseMatMulAdd())
