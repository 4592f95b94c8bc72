"""Recipes and where they apply."""

import pytest

import lucid_fx.quantization as q

A, B = q.get_default_qconfig(), q.get_default_qat_qconfig()


def test_tiers():
    mapping = q.QConfigMapping()
    assert mapping.get_qconfig("Conv", "a") is None
    assert mapping.set_global(A).set_object_type("Conv", B).set_module_name("a.b", None) is mapping
    assert mapping.get_qconfig("Conv", "a.b") is None  # an entry of None is an entry
    assert mapping.get_qconfig("Conv", "a") is B
    assert mapping.get_qconfig("Gemm", "a.b.c") is A
    mapping.set_object_type("Conv", None)
    assert mapping.get_qconfig("Conv", "a") is None


def test_the_defaults():
    activation, weight = A
    assert isinstance(activation(), q.HistogramObserver)
    assert (activation().search, activation().bins) == ("paired", 2048)
    assert weight().ch_axis == 0 and weight().qscheme is q.per_channel_symmetric
    assert activation() is not activation()
    assert q.get_default_qconfig_mapping() is not q.get_default_qconfig_mapping()
    assert q.get_default_qat_qconfig_mapping().get_qconfig("Conv", "x").activation().ch_axis is None


def test_observers_come_out_of_fake_quantizers():
    assert type(B.activation()) is type(B.weight()) is q.FakeQuantize
    assert type(B.activation_observer()) is q.MovingAverageMinMaxObserver
    assert type(B.weight_observer()) is q.PerChannelMinMaxObserver
    assert type(A.activation_observer()) is q.HistogramObserver


def test_a_recipe_is_a_tuple_that_stays():
    with pytest.raises(AttributeError):
        A.weight = None
    assert len(A) == 2
