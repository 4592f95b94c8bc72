"""Formats of scales: every code, rounding up, limits."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_fx.quantization.block import (
    ScaleDtype,
    decode_scales,
    encode_scales,
    scale_size,
    scale_to_dtype,
)

DTYPES = list(ScaleDtype)
SIZES = {"F32": 4, "F16": 2, "BF16": 2, "UE8M0": 1, "UE4M3": 1}


def all_scales(dtype: ScaleDtype) -> np.ndarray:
    """Every finite scale of a format of one or two bytes, sorted."""
    codes = np.arange(256**dtype.size, dtype=f"<u{dtype.size}")
    values = decode_scales(codes.tobytes(), dtype)
    return np.unique(values[np.isfinite(values) & (values >= 0)])


def test_sizes() -> None:
    assert {dtype.name: scale_size(dtype) for dtype in DTYPES} == SIZES


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.size < 4], ids=lambda d: d.name)
def test_rounding_up_is_a_search_among_all_scales(dtype: ScaleDtype) -> None:
    every = all_scales(dtype)
    r = np.random.default_rng(0)
    scales = np.concatenate([
        (2.0 ** r.uniform(-149, 127.9, 4000)).astype(np.float32), every, np.nextafter(every, 0),
        np.nextafter(every, np.float32(np.inf)), np.float32([0.0, 1e-45, 3e38]),
    ])  # fmt: skip
    scales = scales[np.isfinite(scales) & (scales >= 0)].astype(np.float32)
    index = np.searchsorted(every, scales)
    expected = every[np.minimum(index, every.size - 1)]
    np.testing.assert_array_equal(scale_to_dtype(scales, dtype), expected)
    assert every[-1] == dtype.max_representable


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.size < 4], ids=lambda d: d.name)
def test_encoding_takes_the_nearest_and_every_scale_comes_back(dtype: ScaleDtype) -> None:
    every = all_scales(dtype)
    np.testing.assert_array_equal(decode_scales(encode_scales(every, dtype), dtype), every)
    if dtype is ScaleDtype.UE8M0:
        return  # it rounds up
    r = np.random.default_rng(1)
    largest = min(float(dtype.max_representable), 1e38)
    scales = (r.uniform(0, 1, 2000) ** 8 * largest).astype(np.float32)
    found = decode_scales(encode_scales(scales, dtype), dtype)
    index = np.clip(np.searchsorted(every, scales), 1, every.size - 1)
    exact = scales.astype(np.float64)
    distance = np.minimum(exact - every[index - 1], every[index] - exact)
    np.testing.assert_array_equal(np.abs(found - exact), distance)


def test_what_is_not_a_number_passes_and_what_is_negative_does_not() -> None:
    for dtype in DTYPES:
        assert np.isnan(scale_to_dtype(np.nan, dtype))
        assert np.isnan(decode_scales(encode_scales([np.nan], dtype), dtype)).all()
        with pytest.raises(ValueError, match="scale is negative"):
            scale_to_dtype([1.0, -1e-30], dtype)


def test_shapes_stay_and_encoding_saturates() -> None:
    assert scale_to_dtype(np.ones((2, 3)), ScaleDtype.UE4M3).shape == (2, 3)
    assert scale_to_dtype(0.3, ScaleDtype.F16).shape == ()
    assert encode_scales([1e9], ScaleDtype.UE4M3) == b"\x7e"
    assert encode_scales([np.inf], ScaleDtype.UE8M0) == b"\xfe"
