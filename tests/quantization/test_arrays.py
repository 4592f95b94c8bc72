"""Arrays of other libraries, through stand-ins that have nothing but the protocols."""

import ml_dtypes
import numpy as np
import pytest

import lucid_fx.quantization as q
from lucid_fx.quantization.arrays import as_float32, as_numpy

NUMBERS = np.array([[-1.5, 0.25], [3.0, 1e-45]], np.float32)


class DLPackOnly:
    """A tensor that numpy can read through DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldDLPack(DLPackOnly):
    """One from before the protocol had versions."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class WithGradient(DLPackOnly):
    """A tensor of a training run: shares its memory only after ``detach``."""

    def __dlpack__(self, **arguments):
        raise BufferError("a tensor that requires a gradient")

    def detach(self):
        return DLPackOnly(self.array)


class Elsewhere(DLPackOnly):
    """A tensor on a device, until ``cpu`` is called."""

    def __dlpack_device__(self):
        return (2, 0)

    def cpu(self):
        return DLPackOnly(self.array)


class BFloat16(DLPackOnly):
    """A tensor of a type that numpy reads through no protocol; ``float`` widens it."""

    def __dlpack__(self, **arguments):
        raise BufferError("bfloat16")

    def float(self):
        return DLPackOnly(self.array)


class ArrayOnly:
    """Something with ``__array__`` and nothing else."""

    def __array__(self, dtype=None, copy=None):
        return np.array(NUMBERS, dtype=dtype)


@pytest.mark.parametrize("kind", [DLPackOnly, OldDLPack, WithGradient, Elsewhere, BFloat16])
def test_tensors_are_read_through_dlpack(kind):
    found = as_float32(kind(NUMBERS))
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, NUMBERS)


def test_tensors_are_read_through_array():
    np.testing.assert_array_equal(as_float32(ArrayOnly()), NUMBERS)


def test_codes_of_a_tensor_are_those_of_its_numbers():
    expected = q.quantize(NUMBERS, 0.1, 3, q.quint8)
    np.testing.assert_array_equal(q.quantize(DLPackOnly(NUMBERS), 0.1, 3, q.quint8), expected)
    scale = DLPackOnly(np.float32([0.1, 0.1]))
    np.testing.assert_array_equal(q.quantize(NUMBERS, scale, 3, q.quint8, 0), expected)
    assert q.MinMaxObserver()(tensor := WithGradient(NUMBERS)) is tensor


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "float16", "float64"])
def test_other_dtypes_keep_their_values(name):
    kind = getattr(ml_dtypes, name, name)
    array = np.array([-2, 0, 3]).astype(kind)
    np.testing.assert_array_equal(as_float32(array), [-2, 0, 3])
    assert as_numpy(array) is array


def test_python_numbers_and_what_is_too_big():
    assert as_float32(0.1) == np.float32(0.1)
    assert as_float32([1, 2.5]).tolist() == [1, 2.5]
    assert as_float32(1e300) == np.inf


def test_a_tensor_that_nobody_can_read_says_so():
    class Broken(DLPackOnly):
        def __dlpack__(self, **arguments):
            raise BufferError("no way to share")

    with pytest.raises((TypeError, ValueError)):
        as_float32(Broken(NUMBERS))
