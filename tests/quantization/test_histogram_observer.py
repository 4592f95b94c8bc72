"""The histogram observer: what it counts, and which search it asks."""

import numpy as np
import pytest

import lucid_fx.quantization as q


def test_batches_are_counted_on_the_union_of_their_ranges():
    observer = q.HistogramObserver(bins=4)
    observer([0.0, 1.0, 2.0, 3.0, 4.0])
    observer([-4.0, 8.0])
    assert observer.histogram.tolist() == [1, 2, 3, 1]
    assert (observer.min_val, observer.max_val) == (-4, 8)
    assert observer.range() == (-2.5, 6.5)


def test_a_constant_has_no_search():
    observer = q.HistogramObserver(bins=4)
    observer([2.0, 2.0])
    assert observer.range() == (2, 2)
    assert q.HistogramObserver().range() == (np.inf, -np.inf)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_bin(bad):
    observer = q.HistogramObserver()
    observer([1.0, 2.0])
    before = observer.state_dict()
    with pytest.raises(ValueError, match=r"x of shape \(2,\) holds 1 values that are not finite"):
        observer([3.0, bad])
    assert observer.state_dict() == before


def test_a_state_brings_its_bins():
    observer, other = q.HistogramObserver(bins=8), q.HistogramObserver(bins=4)
    observer([0.0, 1.0, 5.0])
    other.load_state_dict(observer.state_dict())
    other([9.0])
    observer([9.0])
    assert other.state_dict() == observer.state_dict() and other.bins == 8


def test_counts_stay_exact():
    observer = q.HistogramObserver(bins=2)
    observer.load_state_dict({"min_val": 0, "max_val": 2, "histogram": [2**53 + 1, 1]})
    observer([0.5])
    assert observer.histogram.tolist() == [2**53 + 2, 1]


def test_the_two_searches():
    rng = np.random.default_rng(0)
    x = np.maximum(rng.normal(0, 1, 20_000), 0).astype(np.float32)
    ranges = {}
    for search in ("paired", "independent"):
        observer = q.HistogramObserver(qdtype=q.quint4, search=search)
        observer(x)
        ranges[search] = observer.range()
    assert ranges["independent"] != ranges["paired"]
    assert ranges["independent"][0] == 0  # zero is on every grid, so there is nothing to clip


def test_wrong_arguments():
    with pytest.raises(ValueError, match="bins is 0, expected at least 1"):
        q.HistogramObserver(bins=0)
    with pytest.raises(ValueError, match="search is 'both', expected one of paired, independent"):
        q.HistogramObserver(search="both")
