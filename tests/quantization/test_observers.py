"""Extremes and their averages: statistics, errors, merging."""

import numpy as np
import pytest

import lucid_fx.quantization as q

PER_CHANNEL = (q.PerChannelMinMaxObserver, q.MovingAveragePerChannelMinMaxObserver)
EXTREMES = (q.MinMaxObserver, q.MovingAverageMinMaxObserver, *PER_CHANNEL)


def seen(observer, *batches):
    for batch in batches:
        assert observer(batch) is batch
    return observer


@pytest.mark.parametrize("kind", [*EXTREMES, q.HistogramObserver])
def test_an_empty_batch_is_refused(kind):
    with pytest.raises(ValueError, match=r"x has shape \(3, 0\), expected at least one value"):
        kind()(np.zeros((3, 0), np.float32))


@pytest.mark.parametrize("kind", EXTREMES)
def test_reset_forgets(kind):
    observer = seen(kind(), np.ones((2, 3)))
    observer.reset()
    assert observer.state_dict() == kind().state_dict()


@pytest.mark.parametrize("kind", EXTREMES)
def test_nan_stays_and_gives_no_grid(kind):
    observer = seen(kind(), [[1.0, np.nan], [2.0, 3.0]], np.ones((2, 2)))
    assert np.isnan(observer.min_val).any() and np.isnan(observer.max_val).any()
    with pytest.raises(ValueError, match=r"min_val.* expected finite numbers; remove NaN"):
        observer.calculate_qparams()


def test_an_infinite_average_starts_anew():
    """The specification's test for "has seen nothing" is an infinite minimum."""
    observer = seen(q.MovingAverageMinMaxObserver(), [0.0, 5.0], [-np.inf, 1.0], [-1.0, 1.0])
    assert observer.range() == (-1, 1)


def test_averages_move_in_float32():
    observer = seen(q.MovingAverageMinMaxObserver(averaging_constant=0.1), [-1.0, 1.0], [-3.0, 2.0])
    c, old, new = np.float32(0.1), np.float32(-1), np.float32(-3)
    assert observer.min_val == old + c * (new - old)


@pytest.mark.parametrize("kind", PER_CHANNEL)
class TestChannels:
    def test_every_axis_but_one_is_reduced(self, kind):
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        for axis in range(-3, 3):
            observer = seen(kind(ch_axis=axis), x)
            others = tuple(a for a in range(3) if a != axis % 3)
            np.testing.assert_array_equal(observer.min_val, x.min(axis=others))
            np.testing.assert_array_equal(observer.max_val, x.max(axis=others))

    def test_a_per_tensor_scheme_is_refused(self, kind):
        with pytest.raises(ValueError, match="needs a per-channel qscheme, got per_tensor_affine"):
            kind(qscheme=q.per_tensor_affine)

    def test_an_axis_out_of_range(self, kind):
        with pytest.raises(IndexError, match=r"ch_axis is 2, expected -2 \.\. 1 .*\(2, 3\)"):
            kind(ch_axis=2)(np.ones((2, 3)))

    def test_a_changed_channel_count(self, kind):
        observer = seen(kind(ch_axis=1), np.ones((2, 3)))
        for channels in (1, 4):
            with pytest.raises(ValueError, match="expected 3 channels on axis 1, as before"):
                observer(np.ones((2, channels)))

    def test_a_state_brings_its_channels(self, kind):
        observer, fresh = seen(kind(), np.arange(6.0).reshape(3, 2)), kind()
        fresh.load_state_dict(observer.state_dict())
        assert fresh.qparams() == observer.qparams()


def test_the_axis_is_kept_for_channels_only():
    assert q.MinMaxObserver(ch_axis=1).ch_axis is None
    assert q.MinMaxObserver(q.per_channel_affine, ch_axis=1).ch_axis == 1


def test_qparams_and_factories():
    observer = seen(q.MinMaxObserver.with_args(qdtype=q.qint8, eps=1e-3)(), [-1.0, 2.0])
    grid = observer.qparams()
    assert grid.qdtype is q.qint8 and grid.qscheme is q.per_tensor_affine
    assert (grid.scale, grid.zero_point) == observer.calculate_qparams()
    factory = q.PerChannelMinMaxObserver.with_args(ch_axis=1)
    assert factory() is not factory()


def test_the_base_class_has_nothing_to_tell():
    base = q.ObserverBase(q.per_tensor_affine, q.quint8)
    for call in (base.calculate_qparams, base.range, lambda: base(1), lambda: base.merge(base)):
        with pytest.raises(NotImplementedError):
            call()


def test_a_state_with_a_hole():
    with pytest.raises(ValueError, match="state of a MinMaxObserver has no max_val; it has min_va"):
        q.MinMaxObserver().load_state_dict({"min_val": 1})


class TestMerge:
    @pytest.mark.parametrize(
        ("one", "other", "difference"),
        [
            (q.MinMaxObserver(), q.HistogramObserver(), "HistogramObserver"),
            (q.MinMaxObserver(), q.MovingAverageMinMaxObserver(), "MovingAverageMinMaxObserver"),
            (q.MinMaxObserver(), q.MinMaxObserver(q.per_tensor_symmetric), "qscheme"),
            (q.MinMaxObserver(), q.MinMaxObserver(qdtype=q.qint8), "qdtype"),
            (q.MinMaxObserver(), q.MinMaxObserver(eps=1), "eps"),
            (q.HistogramObserver(), q.HistogramObserver(bins=4), "bins.* 2048, 4"),
            (q.PerChannelMinMaxObserver(0), q.PerChannelMinMaxObserver(1), "ch_axis"),
            (
                q.MovingAverageMinMaxObserver(),
                q.MovingAverageMinMaxObserver(averaging_constant=0.5),
                "averaging_constant",
            ),
            (
                seen(q.PerChannelMinMaxObserver(), np.ones((2, 2))),
                seen(q.PerChannelMinMaxObserver(), np.ones((3, 2))),
                "2 and 3 channels",
            ),
        ],
    )
    def test_unlike_observers_do_not(self, one, other, difference):
        before = one.state_dict()
        with pytest.raises(ValueError, match=difference):
            one.merge(other)
        assert one.state_dict() == before

    def test_it_gives_itself_back(self):
        observer = seen(q.MinMaxObserver(), [1.0])
        assert observer.merge(seen(q.MinMaxObserver(), [-2.0])) is observer
        assert observer.range() == (-2, 1)

    @pytest.mark.parametrize("kind", [q.MovingAverageMinMaxObserver, PER_CHANNEL[1]])
    def test_averages_of_two_streams_do_not(self, kind):
        batch = np.ones((2, 2), np.float32)
        one, other = seen(kind(), batch), seen(kind(), 2 * batch)
        with pytest.raises(ValueError, match=r"order of the batches; .* MinMaxObserver or a Histo"):
            one.merge(other)
        assert kind().merge(one).state_dict() == one.state_dict() == one.merge(kind()).state_dict()
