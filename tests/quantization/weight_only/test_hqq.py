"""Refined grids: nearer to the weights than those of the extremes, and still legal."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_fx.quantization.weight_only import (
    WeightConfig,
    quantize_matrix,
    refine,
    round_to_nearest,
)
from quantization.weight_only.matrices import CONFIGS, weights


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_no_block_gets_worse_and_most_get_better(config: WeightConfig) -> None:
    w = weights()
    matrix = refine(w, config)
    block = config.block_size
    starts = np.arange(0, len(w), block)

    def errors(real: np.ndarray) -> np.ndarray:
        return np.add.reduceat((real - w).astype(np.float64) ** 2, starts, axis=0)

    before, after = errors(round_to_nearest(w, config).dequantize()), errors(matrix.dequantize())
    assert (after <= before * 1.00001).all()
    assert after.sum() < (0.98 if config.bits < 8 else 1.0) * before.sum()
    assert (matrix.scales != 0).all()
    assert (matrix.codes >= config.low).all() and (matrix.codes <= config.highest).all()


def test_a_weight_that_is_on_a_grid_stays() -> None:
    w = round_to_nearest(weights(), WeightConfig()).dequantize()
    np.testing.assert_array_equal(refine(w, WeightConfig()).dequantize(), w)


@pytest.mark.parametrize("zero_points", [False, True])
def test_columns_do_not_depend_on_each_other(
    zero_points: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    w, config = weights(), WeightConfig(zero_points=zero_points)
    whole = refine(w, config)
    monkeypatch.setattr("lucid_fx.quantization.weight_only.tiles.TILE", 1000)
    parts = refine(w, config)
    np.testing.assert_array_equal(parts.codes, whole.codes)
    np.testing.assert_array_equal(parts.scales, whole.scales)


def test_the_method_of_a_configuration() -> None:
    w, config = weights(), WeightConfig(method="hqq")
    np.testing.assert_array_equal(quantize_matrix(w, config).codes, refine(w, config).codes)
