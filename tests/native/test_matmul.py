"""Products with packed weights: every kernel set against the definition, bit for bit."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from native_build import native
from numpy.typing import NDArray

from lucid_fx.errors import NativeLibraryError
from lucid_fx.native.matmul import PANEL, NativeMatMul

MATMUL = NativeMatMul(native())
SETS = MATMUL.kernel_sets()
VECTOR_ISAS = [
    pytest.param(
        kernels.isa,
        marks=[] if kernels.runs else pytest.mark.skip(f"this machine has no {kernels.isa}"),
    )
    for kernels in SETS
    if kernels.isa != "scalar"
]
EVERY_ISA = [*VECTOR_ISAS, "scalar"]
Floats = NDArray[np.float32]


class Case:
    """A product with random operands."""

    def __init__(
        self,
        m: int = 3,
        k: int = 70,
        n: int = 21,
        *,
        block: int = 32,
        bits: int = 4,
        zeros: bool = False,
        bias: bool = False,
        scales: type = np.float32,
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng([seed, m, k, n, block, bits])
        self.block, self.bits, self.n = block, bits, n
        blocks, panels = -(-k // block), -(-n // PANEL)
        self.a = rng.standard_normal((m, k)).astype(np.float32)
        self.codes = rng.integers(0, 1 << bits, (k, n), dtype=np.uint8)
        self.packed = MATMUL.pack(self.codes, block, bits)
        real = rng.uniform(-1, 1, (panels, blocks, PANEL)) / 8
        if scales is np.uint8:
            self.scales: NDArray[Any] = rng.integers(1, 127, real.shape, dtype=np.uint8)
            self.real_scales = self.scales.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        else:
            self.scales = real.astype(scales)
            self.real_scales = self.scales.astype(np.float32)
        self.zeros = rng.integers(0, 1 << bits, real.shape, dtype=np.uint8) if zeros else None
        self.bias = rng.standard_normal(n).astype(np.float32) if bias else None

    def run(self, isa: str | None = None, **options: Any) -> Floats:
        given = {"n": self.n, "block": self.block, "bits": self.bits, "isa": isa} | options
        return MATMUL.multiply(
            self.a, self.packed, self.scales, zeros=self.zeros, bias=self.bias, **given
        )

    def by_column(self, per_panel: NDArray[Any]) -> NDArray[Any]:
        """From [panels, blocks, 16] to [blocks, N]."""
        flat = per_panel.swapaxes(0, 1).reshape(per_panel.shape[1], -1)
        return flat[:, : self.n]

    @property
    def zero_points(self) -> NDArray[Any]:
        middle = np.full(self.real_scales.shape, 1 << (self.bits - 1), np.uint8)
        return self.by_column(middle if self.zeros is None else self.zeros)

    @property
    def weights(self) -> Floats:
        """W, dequantized with one rounding."""
        rows = np.arange(len(self.codes)) // self.block
        centred = self.codes.astype(np.float32) - self.zero_points[rows]
        return centred * self.by_column(self.real_scales)[rows]


def assert_same_bits(got: Floats, wanted: Floats) -> None:
    np.testing.assert_array_equal(got.view(np.uint32), wanted.view(np.uint32))


EDGES = [
    {"m": m, "k": k, "n": n}
    for m, k, n in [
        *[(m, 64, 16) for m in range(1, 20)],
        *[(2, k, 17) for k in (1, 3, 15, 16, 17, 31, 33, 127, 128, 129, 255, 257)],
        *[(5, 40, n) for n in (1, 15, 16, 17, 31, 33, 100)],
        (9, 257, 33),
    ]
]


@pytest.mark.parametrize("isa", VECTOR_ISAS)
@pytest.mark.parametrize("compute", ["int8", "float32"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_kernels_give_the_bits_of_the_definition(isa: str, compute: str, bits: int) -> None:
    for shape, zeros in itertools.product(EDGES, (False, True)):
        case = Case(**shape, bits=bits, zeros=zeros, bias=zeros)
        assert_same_bits(case.run(isa, compute=compute), case.run("scalar", compute=compute))


@pytest.mark.parametrize("isa", VECTOR_ISAS)
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("scales", [np.float32, np.float16, ml_dtypes.bfloat16, np.uint8])
def test_blocks_and_scale_types(isa: str, block: int, scales: type) -> None:
    for bits, compute in itertools.product((2, 4, 8), ("int8", "float32")):
        case = Case(m=10, k=300, n=40, block=block, bits=bits, scales=scales)
        options = {"compute": compute, "global_scale": 0.37}
        assert_same_bits(case.run(isa, **options), case.run("scalar", **options))


@pytest.mark.parametrize("isa", EVERY_ISA)
@pytest.mark.parametrize("scales", [np.float32, np.float16, ml_dtypes.bfloat16, np.uint8])
@pytest.mark.parametrize("zeros", [False, True])
def test_float_compute_is_exact_up_to_float32_sums(isa: str, scales: type, zeros: bool) -> None:
    for block, bits in itertools.product((16, 128), (2, 4, 8)):
        case = Case(m=4, k=200, n=30, block=block, bits=bits, zeros=zeros, bias=True, scales=scales)
        a, w = case.a.astype(np.float64), case.weights.astype(np.float64)
        wanted = a @ w + case.bias
        # k fused multiply-adds: each rounds a partial sum, which sum |a||w| bounds
        bound = 200 * 2.0**-24 * (np.abs(a) @ np.abs(w) + np.abs(case.bias)) * 1.01
        assert (np.abs(case.run(isa, compute="float32") - wanted) <= bound).all()


def code_steps(a: Floats, block: int) -> Floats:
    """The definition of the step of each block of each row of A."""
    padded = np.zeros((len(a), -(-a.shape[1] // block) * block), np.float32)
    padded[:, : a.shape[1]] = a
    blocks = padded.reshape(len(a), -1, block)
    above = np.maximum(blocks.max(axis=2), 0)
    below = np.maximum(-blocks.min(axis=2), 0)
    reach, other = np.maximum(above, below), np.minimum(above, below)
    signed = np.where(above > below, reach / np.float32(-128), reach / np.float32(128))
    step = np.where(other > reach * np.float32(127.5 / 128), reach / np.float32(127), signed)
    return np.where(reach < 2.0**-100, 0, step).astype(np.float32)


def int8_product(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The definition of the integer product, in float64, and how far float32 may be from it.

    float32 rounds the product of the scales, and twice per block a running sum, all of which the
    sum of magnitudes bounds.
    """
    m, k = case.a.shape
    steps = code_steps(case.a, case.block)
    rows = np.arange(k) // case.block
    inverse = np.divide(np.float32(1), steps, out=np.zeros_like(steps), where=steps != 0)
    a = np.minimum(np.rint(case.a * inverse[:, rows]), 127).astype(np.int64)
    assert np.abs(a).max(initial=0) <= 128
    y, size = np.zeros((2, m, case.n))
    for b in range(steps.shape[1]):
        inside = rows == b
        centred = case.codes[inside].astype(np.int64) - case.zero_points[b].astype(np.int64)
        sums = a[:, inside] @ centred
        scale = steps[:, b : b + 1] * case.by_column(case.real_scales)[b].astype(np.float64)
        y += scale * sums
        size += np.abs(scale) * np.abs(a[:, inside]).sum(axis=1, keepdims=True) * (2 << case.bits)
    return y, (2 * steps.shape[1] + 4) * 2.0**-24 * size


@pytest.mark.parametrize("isa", EVERY_ISA)
@pytest.mark.parametrize("zeros", [False, True])
def test_int8_compute_rounds_a_by_block_and_nothing_else(isa: str, zeros: bool) -> None:
    for block, bits in itertools.product((16, 32, 256), (2, 4, 8)):
        case = Case(m=9, k=300, n=33, block=block, bits=bits, zeros=zeros)
        wanted, bound = int8_product(case)
        assert (np.abs(case.run(isa) - wanted) <= bound).all()


@pytest.mark.parametrize("isa", EVERY_ISA)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32, 256])
def test_nothing_saturates(isa: str, bits: int, block: int) -> None:
    k = 512
    for sign, code in itertools.product((1, -1), (0, (1 << bits) - 1)):
        case = Case(m=2, k=k, n=16, bits=bits, block=block)
        case.a[:] = sign * 3.0
        case.codes[:] = code
        case.packed = MATMUL.pack(case.codes, block, bits)
        case.scales[:] = 1.0
        wanted = sign * 3.0 * k * (code - (1 << (bits - 1)))
        np.testing.assert_allclose(case.run(isa), wanted, rtol=1e-6)


@pytest.mark.parametrize("isa", EVERY_ISA)
def test_not_finite_and_tiny_values_of_a(isa: str) -> None:
    case = Case(m=6, k=64, n=16)
    case.a[0, 5] = np.nan
    case.a[1, 5] = np.inf
    case.a[2, 5] = -np.inf
    case.a[3] = 0
    case.a[4] = 1e-38  # a step would be subnormal: worth nothing beside any other block
    for compute in ("int8", "float32"):
        y = case.run(isa, compute=compute)
        assert not np.isfinite(y[:3]).any()
        assert not y[3].any()
        assert np.isfinite(y[4:]).all()
        assert_same_bits(y[3:], case.run("scalar", compute=compute)[3:])


@pytest.mark.parametrize("isa", EVERY_ISA)
def test_the_number_of_threads_changes_nothing(isa: str) -> None:
    case = Case(m=70, k=900, n=700, zeros=True)
    one = case.run(isa, threads=1)
    for threads in (2, 3, 8):
        assert_same_bits(case.run(isa, threads=threads), one)


@pytest.mark.parametrize("isa", EVERY_ISA)
def test_a_row_does_not_depend_on_the_others(isa: str) -> None:
    case = Case(m=21, k=300, n=40)
    together = case.run(isa)
    rows = case.a
    for i in range(len(rows)):
        case.a = rows[i : i + 1]
        assert_same_bits(case.run(isa), together[i : i + 1])


def test_unaligned_operands() -> None:
    case = Case(m=5, k=100, n=50, scales=np.float16, zeros=True)
    wanted = case.run()
    for name in ("a", "packed", "scales", "zeros"):
        array = getattr(case, name)
        room = np.zeros(array.nbytes + 64, np.uint8)
        odd = room[array.itemsize :][: array.nbytes].view(array.dtype).reshape(array.shape)
        odd[...] = array
        setattr(case, name, odd)
    for kernels in SETS:
        if kernels.runs:
            assert_same_bits(case.run(kernels.isa), wanted)


def plain_pack(codes: NDArray[np.uint8], block: int, bits: int) -> NDArray[np.uint8]:
    """The layout of runtime/native/matmul/matmul.h, written down in another way."""
    k, n = codes.shape
    fields = 8 // bits
    padded = np.zeros((-(-k // block) * block, -(-n // PANEL) * PANEL), np.uint8)
    padded[:k, :n] = codes
    groups = padded.reshape(-1, fields, 4, padded.shape[1] // PANEL, PANEL)
    shifted = groups << (bits * np.arange(fields, dtype=np.uint8))[:, None, None, None]
    bytes_ = np.bitwise_or.reduce(shifted, axis=1)  # group, j, panel, column
    return bytes_.transpose(2, 0, 3, 1).reshape(bytes_.shape[2], -1)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packing_and_back(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for k, n, block in itertools.product((1, 16, 17, 100, 300), (1, 16, 300), (16, 32, 256)):
        codes = rng.integers(0, 1 << bits, (k, n), dtype=np.uint8)
        packed = MATMUL.pack(codes, block, bits)
        np.testing.assert_array_equal(packed, plain_pack(codes, block, bits))
        np.testing.assert_array_equal(MATMUL.unpack(packed, k, n, block, bits), codes)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_extremes_and_codes_of_real_weights(transposed: bool, zeros: bool) -> None:
    rng = np.random.default_rng(0)
    for k, n, block in itertools.product((1, 31, 100, 300), (1, 16, 300), (16, 32, 256)):
        w = rng.standard_normal((n, k) if transposed else (k, n)).astype(np.float32)
        w = w.T if transposed else w
        least, greatest = MATMUL.extremes(w, block)
        starts = np.arange(0, k, block)
        np.testing.assert_array_equal(least, np.minimum.reduceat(w, starts))
        np.testing.assert_array_equal(greatest, np.maximum.reduceat(w, starts))
        scales = (np.maximum(greatest, -least) / 7).astype(np.float32)
        zero = rng.integers(0, 16, scales.shape, dtype=np.uint8) if zeros else None
        rows = np.arange(k) // block
        middle = 8 if zero is None else zero[rows].astype(np.float32)
        wanted = np.clip(np.rint(w / scales[rows]) + middle, 1, 15)
        got = MATMUL.encode(w, scales, zero, low=1, block=block, bits=4)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_extremes_refuse_what_has_no_code(bad: float) -> None:
    w = np.ones((50, 30), np.float32)
    w[41, 29] = bad
    with pytest.raises(ValueError, match="NaN or infinite"):
        MATMUL.extremes(w, 32)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"block": 48}, "block_size must be 16, 32, 64, 128 or 256, got 48"),
        ({"bits": 3}, "bits must be 2, 4 or 8, got 3"),
        ({"compute": "int16"}, "compute must be int8 or float32, got 'int16'"),
        ({"isa": "mmx"}, "this machine has no kernels 'mmx'"),
        ({"n": 0}, "K and N must be between 1 and"),
    ],
)
def test_bad_settings(options: dict[str, Any], text: str) -> None:
    with pytest.raises(NativeLibraryError, match=text):
        Case().run(**options)
