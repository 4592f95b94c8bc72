"""The grids of rounding to nearest, and the two ways in which they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_fx.native import library
from lucid_fx.quantization.block import QuantValue, ScaleDtype
from lucid_fx.quantization.weight_only import (
    QuantizedMatrix,
    WeightConfig,
    quantize_matrix,
    round_to_nearest,
)
from quantization.weight_only.matrices import CONFIGS, weights

EXACT = WeightConfig(block_size=16, scale=ScaleDtype.F32)


def column(*values: float) -> np.ndarray:
    """One block of one column."""
    block = np.zeros((16, 1), np.float32)
    block[: len(values), 0] = values
    return block


@pytest.mark.parametrize(("largest", "scale"), [(-4.0, 0.5), (4.0, -0.5)])
def test_the_largest_weight_has_the_lowest_code_and_its_exact_value(
    largest: float, scale: float
) -> None:
    matrix = round_to_nearest(column(largest, 1.0, -0.25, 3.5, -3.5), EXACT)
    assert matrix.scales[0, 0] == scale and matrix.codes[0, 0] == 0
    np.testing.assert_array_equal(matrix.dequantize()[:2, 0], [largest, 1.0])


def test_symmetric_values_reach_as_far_on_both_sides() -> None:
    matrix = round_to_nearest(
        column(-7, 7, 3), WeightConfig(QuantValue.Q4S, block_size=16, scale=ScaleDtype.F32)
    )
    assert matrix.scales[0, 0] == 1
    np.testing.assert_array_equal(matrix.codes[:4, 0], [1, 15, 11, 8])


def test_zero_points_cover_from_the_least_to_the_greatest() -> None:
    config = WeightConfig(zero_points=True, block_size=16, scale=ScaleDtype.F32)
    matrix = round_to_nearest(column(-3, 12, 5), config)
    assert matrix.zeros is not None and matrix.zeros[0, 0] == 3 and matrix.scales[0, 0] == 1
    np.testing.assert_array_equal(matrix.codes[:4, 0], [0, 15, 8, 3])


def test_one_sign_still_has_an_exact_zero() -> None:
    config = WeightConfig(zero_points=True, block_size=16, scale=ScaleDtype.F32)
    matrix = round_to_nearest(column(15, 3, 1), config)
    assert matrix.zeros is not None and matrix.zeros[0, 0] == 0
    np.testing.assert_array_equal(matrix.dequantize()[:4, 0], [15, 3, 1, 0])


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_weight_moves_by_half_a_step_at_most(config: WeightConfig) -> None:
    w = weights()
    matrix = round_to_nearest(w, config)
    steps = np.abs(matrix.steps).repeat(config.block_size, axis=0)[: len(w)]
    moved = np.abs(matrix.dequantize() - w)
    # at the other end of the range a signed grid ends one step short, and an unsigned one may be
    # half a step off, since its zero is a whole code
    reach = 1.0 if config.op_value in ("Q2F", "Q4F", "Q8F", "U2", "U4", "U8") else 0.5
    assert (moved <= reach * steps * 1.0001).all()
    assert np.mean(moved <= 0.5001 * steps) > 0.9
    assert not matrix.dequantize()[:, 3].any()  # zeros stay zeros
    assert (matrix.codes >= config.low).all() and (matrix.codes <= config.highest).all()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_scales_are_numbers_of_their_format_and_never_zero(config: WeightConfig) -> None:
    scales = round_to_nearest(weights(), config).scales
    assert (scales != 0).all()
    kinds = {"F16": np.float16, "F32": np.float32}
    if config.scale.name in kinds:
        np.testing.assert_array_equal(scales.astype(kinds[config.scale.name]), scales)
    if config.scale is ScaleDtype.UE4M3:
        assert (scales > 0).all() and scales.max() == 448


@pytest.mark.skipif(library.load() is None, reason="there is one way only")
@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("kind", ["rows", "columns", "half"])
def test_native_and_numpy_agree_bit_for_bit(
    config: WeightConfig, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = weights()
    w = {"rows": w, "columns": np.ascontiguousarray(w.T).T, "half": w.astype(np.float16)}[kind]
    found = round_to_nearest(w, config)
    monkeypatch.setattr("lucid_fx.quantization.weight_only.grids.load", lambda: None)
    equal(round_to_nearest(w, config), found)


def test_parts_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    w = weights(400, 40).astype(np.float16)
    whole = round_to_nearest(w, WeightConfig())
    monkeypatch.setattr("lucid_fx.quantization.weight_only.tiles.TILE", 2000)
    equal(round_to_nearest(w, WeightConfig()), whole)


def equal(found: QuantizedMatrix, wanted: QuantizedMatrix) -> None:
    np.testing.assert_array_equal(found.codes, wanted.codes)
    np.testing.assert_array_equal(found.scales, wanted.scales)
    if wanted.zeros is not None:
        np.testing.assert_array_equal(found.zeros, wanted.zeros)
    assert found.global_scale == wanted.global_scale


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("with_library", [True, False])
def test_weights_that_are_not_finite_are_refused(
    bad: float, with_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_library:
        monkeypatch.setattr("lucid_fx.quantization.weight_only.grids.load", lambda: None)
    w = weights()
    w[100, 7] = bad
    with pytest.raises(ValueError, match="a weight is NaN or infinite"):
        round_to_nearest(w, WeightConfig())


def test_weights_beyond_the_scale_format_are_refused() -> None:
    w = weights() * 1e7
    with pytest.raises(ValueError, match="and F16 ends at 65504: use F32"):
        round_to_nearest(w, WeightConfig())
    assert np.isfinite(round_to_nearest(w, WeightConfig(scale=ScaleDtype.F32)).dequantize()).all()


def test_gptq_needs_more_than_weights() -> None:
    with pytest.raises(ValueError, match="method is gptq, which needs the inputs of the layer"):
        quantize_matrix(weights(), WeightConfig(method="gptq"))
