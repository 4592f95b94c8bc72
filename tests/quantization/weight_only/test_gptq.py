"""GPTQ: a smaller error of the outputs than any rounding of the weights alone."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_fx.quantization.weight_only import GramObserver, WeightConfig, refine, solve
from quantization.weight_only.matrices import CONFIGS, weights

K, N = 200, 40


def inputs(rows: int = 2000, seed: int = 1) -> np.ndarray:
    """Correlated inputs, as those of a layer are."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((rows, K // 4)) @ rng.standard_normal((K // 4, K))
    return (mixed + 0.3 * rng.standard_normal((rows, K))).astype(np.float32)


def gram(x: np.ndarray) -> np.ndarray:
    observer = GramObserver()
    observer.forward(x)
    return observer.gram


def output_error(x: np.ndarray, w: np.ndarray, real: np.ndarray) -> float:
    return float(np.square(x.astype(np.float64) @ (real - w)).sum())


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_outputs_on_other_inputs_are_nearer(config: WeightConfig) -> None:
    w = weights(K, N)
    rng = np.random.default_rng(5)
    x = inputs()
    seen, unseen = x[:1500], x[1500:][rng.permutation(500)]
    matrix, notes = solve(w, gram(seen), config)
    assert not notes
    error = output_error(unseen, w, matrix.dequantize())
    assert error < 0.7 * output_error(unseen, w, refine(w, config).dequantize())
    assert (matrix.codes >= config.low).all() and (matrix.codes <= config.highest).all()


def test_without_correlation_it_is_rounding() -> None:
    w, config = weights(K, N), WeightConfig()
    matrix, _ = solve(w, np.eye(K), config)
    np.testing.assert_array_equal(matrix.dequantize(), refine(w, config).dequantize())


def test_one_block_by_hand() -> None:
    """Two rows: the second takes up the error of the first, weighted by their correlation."""
    h = np.array([[2.0, 1.0], [1.0, 2.0]])
    w = np.array([[-8.0], [3.4]], np.float32)
    w = np.concatenate([w, np.zeros((14, 1), np.float32)])
    whole = np.eye(16)
    whole[:2, :2] = h
    config = WeightConfig(block_size=16)
    matrix, _ = solve(w, whole, config, damping=0.0)
    step = matrix.scales[0, 0]
    first = np.rint(w[0, 0] / step) * step
    moved = w[1, 0] + (w[0, 0] - first) * h[0, 1] / h[1, 1]
    np.testing.assert_allclose(matrix.dequantize()[1, 0], np.rint(moved / step) * step, rtol=1e-6)


def test_inputs_that_were_always_zero_are_rounded_and_told() -> None:
    w, x, config = weights(K, N), inputs(), WeightConfig()
    x[:, 32:64] = 0
    matrix, notes = solve(w, gram(x), config)
    assert notes == ["32 inputs were always zero"]
    np.testing.assert_array_equal(matrix.dequantize()[32:64], refine(w, config).dequantize()[32:64])


def test_no_inputs_at_all() -> None:
    w, config = weights(K, N), WeightConfig()
    matrix, notes = solve(w, np.zeros((K, K)), config)
    assert notes == ["its inputs were always zero: rounded to nearest"]
    np.testing.assert_array_equal(matrix.dequantize(), refine(w, config).dequantize())


def test_damping_is_raised_until_the_matrix_is_positive() -> None:
    h = gram(inputs())
    h -= 0.05 * np.trace(h) / K * np.eye(K)  # what rounding of sums could do, much enlarged
    _, notes = solve(weights(K, N), h, WeightConfig())
    assert notes == ["damping was raised from 0.01 to 0.1"]


def test_what_is_no_gram_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gram has shape \(3, 3\), expected \(200, 200\)"):
        solve(weights(K, N), np.eye(3), WeightConfig())
    with pytest.raises(ValueError, match="gram holds NaN"):
        solve(weights(K, N), np.full((K, K), np.nan), WeightConfig())
    wild = np.eye(K)
    wild[0, 1] = wild[1, 0] = 50
    with pytest.raises(ValueError, match="not the product of a matrix with itself"):
        solve(weights(K, N), wild, WeightConfig())
