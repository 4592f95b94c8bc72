"""FakeQuantize: a grid that follows the data, its switches and its state."""

import json

import numpy as np
import pytest

import lucid_fx.quantization as q


def test_the_batch_is_observed_before_it_is_moved():
    made = q.FakeQuantize(q.MinMaxObserver)
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_allclose(made(x), x, atol=float(made.scale) / 2)
    assert made.zero_point == 85
    assert made.scale == np.float32(3) / np.float32(255)


def test_a_frozen_grid_saturates():
    made = q.FakeQuantize(q.MinMaxObserver)
    made(np.array([-1, 2], np.float32))
    assert made.disable_observer() is made
    x = np.array([-100, 0.5, 100], np.float32)
    y = made(x)
    np.testing.assert_allclose(y[[0, 2]], [-1, 2], rtol=1e-6)
    assert made.backward(np.full(3, 7), x).tolist() == [0, 7, 0]


def test_without_moving_the_observer_goes_on():
    made = q.FakeQuantize(q.MinMaxObserver)
    assert made.disable_fake_quant() is made
    x = np.array([-4.5, 7.8], np.float32)
    assert made(x) is x
    assert made.backward([3, 4], x).tolist() == [3, 4]
    assert made.zero_point == 93
    assert made.enable_fake_quant() is made
    assert made(x) is not x


def test_before_any_data_the_grid_is_that_of_whole_numbers():
    made = q.FakeQuantize().enable_observer(False)
    assert made(np.array([0.4, 1.6, -3, 300])).tolist() == [0, 2, 0, 255]
    made.enable_observer()
    made(np.array([0.0, 51.0]))
    assert made.scale == np.float32(51) / np.float32(255)


def test_attributes_are_those_of_the_observer():
    made = q.FakeQuantize.with_args(
        observer=q.PerChannelMinMaxObserver, ch_axis=1, qdtype=q.qint4
    )()
    assert (made.qdtype, made.qscheme, made.ch_axis) == (q.qint4, q.per_channel_symmetric, 1)
    made(np.ones((2, 3), np.float32))
    assert made.scale.shape == made.zero_point.shape == (3,)
    assert all(
        (a == b).all()
        for a, b in zip(
            made.calculate_qparams(),
            made.activation_post_process.calculate_qparams(),
            strict=True,
        )
    )


def test_the_observer_speaks_for_itself_not_for_the_grid_in_use():
    made = q.FakeQuantize(q.MinMaxObserver)
    made(np.array([0.0, 1.0]))
    made.activation_post_process(np.array([0.0, 2.0]))
    assert made.calculate_qparams()[0] == 2 * made.scale


def test_a_state_brings_shapes_and_switches():
    made = q.FakeQuantize(q.PerChannelMinMaxObserver)
    x = np.array([[1, -2], [3, 0.5]], np.float32)
    made(x)
    made.disable_observer()
    again = q.FakeQuantize(q.PerChannelMinMaxObserver)
    again.load_state_dict(json.loads(json.dumps(made.state_dict())))
    assert again.state_dict() == made.state_dict() and not again.observer_enabled
    np.testing.assert_array_equal(again(x), made(x))
    with pytest.raises(ValueError, match="state of a FakeQuantize has no activation_post_process"):
        again.load_state_dict({"scale": 1, "zero_point": 0})


@pytest.mark.parametrize("kind", [q.PlaceholderObserver, q.NoopObserver])
def test_nothing_to_follow(kind):
    made = q.FakeQuantize(kind)
    with pytest.raises(RuntimeError, match="no statistics"):
        made(np.ones(2))
    made.disable_observer()
    assert made(np.array([1.4])).tolist() == [1]
