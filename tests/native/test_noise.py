"""Sums of noise: the native library's are those of the numpy definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_fx.errors import NativeLibraryError
from lucid_fx.native.library import load
from lucid_fx.native.noise import NativeNoise, NoiseForm, NoiseSums
from lucid_fx.tensor_error import CHUNK, LARGEST, noise_sums

LIBRARY = load()
if LIBRARY is None:
    pytest.skip("the native library is not installed", allow_module_level=True)

ISAS = LIBRARY.isas()
INF = float("inf")
PLAIN = (-INF, INF)
ROUNDING = 2.0**-24
LANE = 4096 // 32
"""A lane adds 128 squares in float32; the lanes are added in float64."""
EXACT = ("largest", "low", "high", "elements", "clipped")


def form_of(dtype: Any, needed: tuple[float, float] = PLAIN) -> NoiseForm:
    if dtype == np.float32:
        return NoiseForm(0, 1, *needed, *PLAIN, *PLAIN)
    zero, scale = (128, 0.02) if dtype == np.uint8 else (-5, 0.02)
    low, high = ((end - zero) * scale for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    half = scale / 2
    return NoiseForm(zero, scale, *needed, low - half, high + half, low, high)


def tensors(seed: int, size: int, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    exact = rng.normal(0, 1.5, size).astype(np.float32)
    given = rng.normal(0, 1.5, size) if dtype == np.float32 else rng.integers(-99, 99, size)
    return exact, given.astype(dtype)


def assert_equal(ours: NoiseSums, wanted: NoiseSums) -> None:
    """Sums of squares have no cancellation: each addition is off by a rounding at most."""
    for name in EXACT:
        assert getattr(ours, name) == getattr(wanted, name), name
    for name in ("signal", "noise"):
        bound = (LANE + CHUNK + 2) * ROUNDING
        assert getattr(ours, name) == pytest.approx(getattr(wanted, name), rel=bound), name
    assert ours.outside == pytest.approx(wanted.outside, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.one_of(st.integers(0, 100), st.sampled_from([4095, 4096, 4097, 40_000])),
    dtype=st.sampled_from([np.float32, np.uint8, np.int8]),
    needed=st.sampled_from([PLAIN, (0.0, INF), (-3.0, 3.0)]),
    odd=st.lists(
        st.tuples(
            st.integers(0, 39_999),
            st.sampled_from([np.nan, INF, -INF, 1e38, LARGEST, -LARGEST, 9e15, 0.0, 100.0]),
        ),
        max_size=4,
    ),
)
def test_every_kernel_set_sums_what_the_definition_sums(
    seed: int, size: int, dtype: Any, needed: tuple[float, float], odd: list[tuple[int, float]]
) -> None:
    exact, codes = tensors(seed, size, dtype)
    for place, value in odd:
        if size:
            exact[place % size] = value
    form = form_of(dtype, needed)
    wanted = noise_sums(form, exact, codes)
    results = [NativeNoise(LIBRARY, isa).sums(form, exact, codes) for isa in ISAS if has(isa)]
    for ours in results:
        assert_equal(ours, wanted)
        assert bytes(ours) == bytes(results[0])


def has(isa: str) -> bool:
    """Whether there is a kernel set of this name: observers have more of them."""
    return isa in ("avx2", "neon", "scalar")


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int8])
def test_sums_are_as_good_as_a_lane_allows(dtype: Any) -> None:
    exact, codes = tensors(1, 100_000, dtype)
    form = form_of(dtype)
    ours = NativeNoise(LIBRARY).sums(form, exact, codes)
    error = (codes.astype(np.float32) - form.zero_point) * np.float32(form.scale) - exact
    bound = (LANE + 1) * ROUNDING
    assert ours.signal == pytest.approx(np.sum(exact.astype(np.float64) ** 2), rel=bound)
    assert ours.noise == pytest.approx(np.sum(error.astype(np.float64) ** 2), rel=bound)


@pytest.mark.parametrize("bad", [np.nan, INF, -INF])
@pytest.mark.parametrize("place", [0, 5_000, 5_001])
def test_a_result_that_is_not_finite_is_infinite_noise(bad: float, place: int) -> None:
    exact, real = tensors(2, 5_002, np.float32)
    real[place] = bad
    form = form_of(np.float32)
    for sums in (noise_sums(form, exact, real), NativeNoise(LIBRARY).sums(form, exact, real)):
        assert sums.noise == INF
        assert np.isfinite(sums.signal)
        assert sums.elements == exact.size
        assert np.isfinite(sums.largest) == np.isnan(bad)


def test_other_types_and_strided_arrays_are_left_to_the_definition() -> None:
    exact, codes = tensors(3, 64, np.uint8)
    assert NativeNoise.takes(exact, codes)
    assert not NativeNoise.takes(exact, codes.astype(np.int16))
    assert not NativeNoise.takes(exact.astype(np.float64), codes)
    assert not NativeNoise.takes(exact[::2], codes[::2])


def test_the_kernel_set_is_one_of_this_machine() -> None:
    exact, codes = tensors(4, 8, np.uint8)
    with pytest.raises(NativeLibraryError, match="mmx"):
        NativeNoise(LIBRARY, "mmx").sums(form_of(np.uint8), exact, codes)
