"""Grids and schemes as values."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

import lucid_fx.quantization as q
from lucid_fx.quantization.dtypes import NAMED


@pytest.mark.parametrize("dtype", NAMED, ids=lambda dtype: dtype.name)
def test_every_code_of_the_width_is_there_and_can_be_stored(dtype):
    assert dtype.levels == 2**dtype.bits
    assert dtype.signed == (dtype.quant_min < 0)
    ends = np.array([dtype.quant_min, dtype.quant_max]).astype(dtype.numpy_dtype)
    assert ends.astype(np.int64).tolist() == [dtype.quant_min, dtype.quant_max]
    assert ir.DataType.from_numpy(dtype.numpy_dtype).bitwidth == dtype.bits
    assert getattr(q, dtype.name) is dtype


def test_a_grid_is_a_value():
    same = q.QDtype("quint8", 8, False, 0, 255, "uint8")
    assert same == q.quint8 and hash(same) == hash(q.quint8) and same != q.qint8
    with pytest.raises(dataclasses.FrozenInstanceError):
        same.bits = 4
    assert repr(same) == "lucid_fx.quantization.quint8"


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(q.quint8, "int16"), (q.qint8, "int8"), (q.quint16, "int32"), (q.qint32, "int32"),
     (q.quint4, "int8"), (q.qint2, "int8")],
)  # fmt: skip
def test_the_narrowest_signed_type(dtype, expected):
    assert dtype.signed_storage == expected


@pytest.mark.parametrize(("dtype", "middle"), [(q.quint8, 128), (q.qint8, 0), (q.quint4, 8)])
def test_the_middle(dtype, middle):
    assert dtype.middle == middle


def test_aliases_are_the_members():
    for scheme in q.QScheme:
        assert getattr(q, scheme.value) is scheme
    assert [s.is_per_channel for s in q.QScheme] == [False, False, True, True]
    assert [s.is_symmetric for s in q.QScheme] == [False, True, False, True]
