"""Ranges of tensors and blocks, and the scales that follow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lucid_fx.quantization.block as b
from lucid_fx.quantization.block import (
    Calibration,
    QuantScheme,
    QuantStore,
    QuantValue,
    ScaleDtype,
    engines,
)
from lucid_fx.quantization.block import tiles as tiles_module

NATIVE = QuantStore.Native
MIN_MAX, ABS_MEAN = Calibration.MinMax, Calibration.AbsMean


def blocks_of(x: np.ndarray, block: tuple[int, ...]) -> dict[tuple[int, ...], np.ndarray]:
    grid = [range(0, size, extent) for size, extent in zip(x.shape, block, strict=True)]
    return {
        tuple(s // e for s, e in zip(starts, block, strict=True)): x[
            tuple(slice(s, s + e) for s, e in zip(starts, block, strict=True))
        ]
        for starts in itertools.product(*grid)
    }


@pytest.mark.parametrize("block", [(4, 8), (3, 5), (1, 7), (12, 1), (1, 1), (20, 33)])
@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("tile", [50, 1 << 22])
def test_every_block_has_its_own_range(
    block: tuple[int, ...], native: bool, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "NATIVE_ELEMENTS", 0 if native else 1 << 60)
    monkeypatch.setattr(tiles_module, "TILE_ELEMENTS", tile)
    x = np.random.default_rng(0).standard_normal((12, 24)).astype(np.float32)
    scheme = QuantScheme().per_block(block, ScaleDtype.F32)
    low, high = b.compute_range(scheme, x, MIN_MAX)
    left, right = b.compute_range(scheme, x, ABS_MEAN)
    assert low.shape == high.shape == left.shape == b.params_shape(x.shape, scheme)
    for at, part in blocks_of(x, block).items():
        assert (low[at], high[at]) == (part.min(), part.max())
        mean = np.abs(part).astype(np.float64).mean()
        np.testing.assert_allclose((-left[at], right[at]), mean, rtol=2**-23)


@pytest.mark.parametrize("tile", [7, 1 << 22])
def test_a_tensor_has_one_range_that_need_not_hold_zero(
    tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles_module, "TILE_ELEMENTS", tile)
    x = np.linspace(2, 3, 30, dtype=np.float32).reshape(5, 6)
    assert [v.tolist() for v in b.compute_range(QuantScheme(), x, MIN_MAX)] == [[2.0], [3.0]]
    low, high = b.compute_range(QuantScheme(), x, ABS_MEAN)
    np.testing.assert_allclose([-low, high], [[2.5], [2.5]], rtol=2**-23)


def test_partial_blocks_are_an_extension_and_strict_refuses_them() -> None:
    scheme = QuantScheme().per_block([4], ScaleDtype.F32)
    x = np.arange(6, dtype=np.float32)
    low, high = b.compute_range(scheme, x, MIN_MAX)
    assert (low.tolist(), high.tolist()) == ([0, 4], [3, 5])
    with pytest.raises(ValueError, match="evenly divisible by block size"):
        b.compute_range(scheme, x, MIN_MAX, strict=True)
    b.compute_range(scheme, x[:4], MIN_MAX, strict=True)


@pytest.mark.parametrize("calibration", list(Calibration))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(calibration: Calibration, bad: float) -> None:
    for scheme in (QuantScheme(), QuantScheme().per_block([2], ScaleDtype.F32)):
        with pytest.raises(ValueError, match="NaN or infinite"):
            b.compute_range(scheme, [1.0, bad, 0.0], calibration)


def test_tensors_without_elements_or_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="no elements"):
        b.compute_range(QuantScheme(), np.empty((0, 3)), MIN_MAX)
    with pytest.raises(ValueError, match="complex64"):
        b.compute_range(QuantScheme(), np.ones(2, np.complex64), MIN_MAX)
    with pytest.raises(ValueError, match="two-level"):
        b.compute_range(b.nvfp4(), [1.0], ABS_MEAN)


@pytest.mark.parametrize("value", list(QuantValue), ids=lambda value: value.name)
def test_the_largest_magnitude_reaches_the_end_of_the_codes(value: QuantValue) -> None:
    low, high = value.range
    params = b.compute_q_params(QuantScheme(value, NATIVE), [-3.0], [1.0])
    assert params.scales == np.float32(3) / np.float32((high - low) / 2)
    assert params.global_scale is None
    huge = b.compute_q_params(QuantScheme(value, NATIVE), [-3e38], [0])
    assert np.isfinite(huge.scales).all()


def test_two_levels_make_the_largest_block_scale_the_largest_number() -> None:
    scheme = QuantScheme(QuantValue.Q8S, NATIVE).per_tensor(ScaleDtype.F32)
    for dtype in (ScaleDtype.F16, ScaleDtype.UE4M3):
        two = scheme.per_block([2], dtype)
        params = b.compute_q_params(two, [-1.0, 0.0], [0.5, 3.0])
        largest = np.float32(3) / np.float32(127) / dtype.max_representable
        assert params.global_scale == largest
        np.testing.assert_allclose(params.scales[1], dtype.max_representable, rtol=2**-23)
    with pytest.raises(ValueError, match="under a tensor scale"):
        b.compute_q_params(scheme.per_block([2], ScaleDtype.BF16), [0], [1])


def test_parameters_compare_by_value() -> None:
    one = b.QParams(np.ones(2, np.float32))
    assert one == b.QParams(np.ones(2)) != b.QParams(np.ones(3))
    assert one != b.QParams(np.ones(2), np.float32(1))
    assert b.QParams([1.0], 2.0) == b.QParams([1.0], 2.0) != b.QParams([1.0], 3.0)
    assert one != 3
