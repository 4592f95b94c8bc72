"""The streaming X^T X."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lucid_fx.quantization.weight_only import GramObserver

X = np.random.default_rng(0).standard_normal((2, 5, 6)).astype(np.float32)


def seen(*batches: np.ndarray) -> GramObserver:
    observer = GramObserver()
    for batch in batches:
        assert observer.forward(batch) is batch
    return observer


def test_batches_of_any_rank_sum_up_over_the_last_axis() -> None:
    rows = X.reshape(-1, 6).astype(np.float64)
    for observer in (seen(X), seen(*X), seen(rows), seen(X[0]).merge(seen(X[1]))):
        np.testing.assert_allclose(observer.gram, rows.T @ rows, rtol=1e-12, atol=1e-12)
        assert observer.count == 10


def test_sums_are_in_float64() -> None:
    x = np.full((1000, 2), 4097, np.float32)  # squares have 25 bits, their sum 35
    assert (seen(x).gram == 1000 * 4097**2).all()


def test_rows_that_are_not_finite_are_left_out_and_counted() -> None:
    x = X.copy()
    x[0, 1, 2], x[1, 0, 0] = np.nan, np.inf
    rows = np.delete(X.reshape(-1, 6), [1, 5], axis=0).astype(np.float64)
    observer = seen(x)
    np.testing.assert_allclose(observer.gram, rows.T @ rows, rtol=1e-12)
    assert (observer.count, observer.left_out) == (8, 2)


def test_state_round_trip_reset_and_merge_with_nothing() -> None:
    observer = seen(X)
    twin = GramObserver()
    twin.load_state_dict(json.loads(json.dumps(observer.state_dict())))
    np.testing.assert_array_equal(twin.gram, observer.gram)
    np.testing.assert_array_equal(GramObserver().merge(observer).gram, observer.gram)
    observer.reset()
    assert observer.gram.shape == (0, 0) and observer.count == 0


def test_refusals() -> None:
    with pytest.raises(ValueError, match="expected 6 values, as before along the last axis"):
        seen(X).forward(X[..., :5])
    with pytest.raises(ValueError, match="over 6 and 5 values cannot merge"):
        seen(X).merge(seen(X[..., :5]))
    with pytest.raises(NotImplementedError):
        seen(X).range()
