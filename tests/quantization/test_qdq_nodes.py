"""Grids as Q and DQ nodes have them."""

import numpy as np
import onnx_ir as ir
import pytest

import lucid_fx.quantization as q
from lucid_fx.quantization.dtypes import NAMED


def value(name, array=None, dtype=None):
    made = ir.Value(name=name, type=ir.TensorType(dtype) if dtype else None)
    if array is not None:
        made.const_value = ir.tensor(np.asarray(array), name=name)
        made.dtype = made.const_value.dtype
    return made


def node(op="DequantizeLinear", *inputs, domain="", **attributes):
    return ir.node(op, list(inputs), attributes, domain=domain, name="dq")


@pytest.mark.parametrize("dtype", NAMED, ids=lambda dtype: dtype.name)
def test_constants_are_of_the_type_of_the_codes(dtype):
    grid = q.QParams([0.1, 0.2], [0, 1], q.per_channel_affine, dtype, 1)
    constants = q.qdq_constants(grid)
    assert ir.DataType.from_numpy(constants.zero_point.dtype).name == dtype.storage.upper()
    assert constants.attributes == {"axis": 1}
    single = q.QParams(0.1, 0, q.per_tensor_affine, dtype)
    assert q.qdq_constants(single).attributes == {}
    assert q.qdq_constants(single).zero_point.shape == ()


def test_packed_types_take_half_or_a_quarter_of_a_byte():
    codes = q.quantize([1, -2, 3, 0, 1], 1, 0, q.qint4)
    assert ir.tensor(codes).tobytes().hex() == "e10301"  # two codes a byte, the first one low


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
def test_the_scheme_is_read_off_where_nobody_tells(domain):
    scale, middle = value("s", np.float32([1, 2])), value("z", np.uint8([128, 128]))
    found = q.qparams_of_node(node("QuantizeLinear", value("x"), scale, middle, domain=domain))
    assert found == q.QParams([1, 2], [128, 128], q.per_channel_symmetric, q.quint8, 1)
    off = value("z", np.uint8([128, 127]))
    found = q.qparams_of_node(node("QuantizeLinear", value("x"), scale, off, axis=-1))
    assert found == q.QParams([1, 2], [128, 127], q.per_channel_affine, q.quint8, -1)


def test_without_a_zero_point_the_codes_tell_the_type():
    scale = value("s", np.float32(0.5))
    of = q.qparams_of_node
    codes = value("c", np.zeros(3, np.int8))
    assert of(node("DequantizeLinear", codes, scale)).qdtype is q.qint8
    assert of(node("DequantizeLinear", value("c", dtype=ir.DataType.UINT4), scale)).qdtype is (
        q.quint4
    )
    assert of(node("QuantizeLinear", value("x"), scale)).qdtype is q.quint8
    named = node("QuantizeLinear", value("x"), scale, output_dtype=int(ir.DataType.INT16))
    assert of(named).qdtype is q.qint16


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (node("Relu", value("x")), "is a Relu, not a Q or DQ"),
        (node("QuantizeLinear", value("x"), value("s")), "scale .* computed at run time"),
        (
            node("QuantizeLinear", value("x"), value("s", np.float32(1)), value("z")),
            "zero point .* computed at run time",
        ),
        (
            node("QuantizeLinear", value("x"), value("s", np.ones((2, 2), np.float32))),
            r"scales of shape \(2, 2\), for blocks",
        ),
        (
            node(
                "DequantizeLinear",
                value("c", dtype=ir.DataType.FLOAT8E4M3FN),
                value("s", np.float32(1)),
            ),
            "codes of type FLOAT8E4M3FN, which are no integers",
        ),
    ],
)
def test_what_is_no_affine_grid_says_why(made, message):
    with pytest.raises(ValueError, match=message):
        q.qparams_of_node(made)
