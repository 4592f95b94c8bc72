"""Counting and growth of histograms."""

import numpy as np
import pytest

from lucid_fx.quantization.histogram import count, regrow


def values(*numbers):
    return np.array(numbers, np.float32)


def test_the_largest_value_is_in_the_last_bin():
    assert count(values(0, 1, 2, 3, 4), 0, 4, 4).tolist() == [1, 1, 1, 2]


def test_a_range_of_no_width_counts_in_the_first_bin():
    assert count(values(2, 2, 2), 2, 2, 4).tolist() == [3, 0, 0, 0]
    assert count(values(2.0**60), 2.0**60, 2.0**60, 4).tolist() == [1, 0, 0, 0]


def test_counts_move_to_the_bin_of_their_centre():
    assert regrow(np.array([1, 1, 1, 2]), (0, 4), (-4, 8)).tolist() == [0, 2, 3, 0]
    assert regrow(np.array([3, 0, 0, 0]), (2, 2), (0, 8)).tolist() == [0, 3, 0, 0]


@pytest.mark.parametrize("new", [(0, 4), (-1e-3, 4), (0, 1e6), (-3e38, 3e38), (-1e-45, 4)])
def test_growth_keeps_the_mass(new):
    before = np.array([5, 0, 7, 2**53 + 1])  # more than float64 adds exactly
    after = regrow(before, (0, 4), new)
    assert after.sum() == before.sum() and after.dtype == np.int64


def test_a_range_that_stays_moves_nothing():
    """In float32 a centre can come out on the wrong side of its bin's edge."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        ends = np.sort(rng.normal(0, 1, 2).astype(np.float32))
        before = rng.integers(0, 9, 2048)
        np.testing.assert_array_equal(regrow(before, tuple(ends), tuple(ends)), before)
