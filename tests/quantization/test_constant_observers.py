"""Observers that learn nothing."""

import numpy as np
import pytest

import lucid_fx.quantization as q


def test_fixed_numbers_are_valid_at_once_and_stay():
    observer = q.FixedQParamsObserver(1 / 256, 0)
    before = observer.qparams()
    x = np.ones(3)
    assert observer(x) is x
    observer.reset()
    assert observer.qparams() == before == q.QParams(1 / 256, 0, q.per_tensor_affine, q.quint8)
    assert observer.merge(q.FixedQParamsObserver(1 / 256, 0)).qparams() == before
    with pytest.raises(ValueError, match="differ in zero_point cannot merge"):
        observer.merge(q.FixedQParamsObserver(1 / 256, 1))


def test_fixed_numbers_are_a_state():
    observer = q.FixedQParamsObserver(1, 0)
    observer.load_state_dict(q.FixedQParamsObserver(0.1, 7).state_dict())
    assert observer.calculate_qparams() == (np.float32(0.1), 7)


@pytest.mark.parametrize("kind", [q.PlaceholderObserver, q.NoopObserver])
def test_placeholders_pass_everything_on_and_know_nothing(kind):
    observer = kind(qdtype=q.qint8)
    x = np.ones(3)
    assert observer(x) is x
    assert observer.state_dict() == {} and observer.qdtype is q.qint8
    observer.load_state_dict({})
    for call in (observer.calculate_qparams, observer.qparams):
        with pytest.raises(RuntimeError, match=f"{kind.__name__} collects no statistics"):
            call()
    assert observer.merge(kind(qdtype=q.qint8)) is observer
