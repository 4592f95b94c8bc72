"""Codes of real values and back: what hypothesis does not find by itself, and errors."""

import ml_dtypes
import numpy as np
import pytest

import lucid_fx.quantization as q

X = np.zeros((2, 3), np.float32)


def test_ties_go_to_even_before_the_zero_point_is_added():
    ties = [0.5, 1.5, 2.5, -0.5, -1.5]
    assert q.quantize(ties, 1, 0, q.qint8).tolist() == [0, 2, 2, 0, -2]
    assert q.quantize(ties, 1, 1, q.quint8).tolist() == [1, 3, 3, 1, 0]


def test_int32_is_clipped_without_overflow():
    codes = q.quantize([1e10, -1e10, np.inf, 2**31 - 1], 1, 0, q.qint32)
    assert codes.tolist() == [2**31 - 1, -(2**31), 2**31 - 1, 2**31 - 1]


def test_steps_are_divided_in_float32():
    """-1 / 0.007843138 is -127.49999 in float32, where exact arithmetic has a tie."""
    assert q.quantize([-1.0], 2 / 255, 127, q.quint8).tolist() == [0]
    scale, zero = q.calculate_qparams(-1, 1, q.per_tensor_affine, q.quint8)
    assert zero == 127
    assert q.quantize([-1.0], scale, zero, q.quint8).tolist() == [0]


@pytest.mark.parametrize("dtype", [q.qint4, q.quint4, q.qint2, q.quint2])
def test_narrow_codes_have_types_of_their_own(dtype):
    codes = q.quantize([-100, 0, 100], 1, 0, dtype)
    assert codes.dtype == getattr(ml_dtypes, dtype.storage)
    assert codes.astype(int).tolist() == [dtype.quant_min, 0, dtype.quant_max]
    assert q.dequantize(codes, 2, 0).tolist() == [2 * dtype.quant_min, 0, 2 * dtype.quant_max]


def test_a_grid_of_your_own():
    ternary = q.QDtype("ternary", 2, True, -1, 1, "int8")
    codes = q.quantize([-9, -0.4, 0.6], 1, 0, ternary)
    assert codes.tolist() == [-1, 0, 1] and codes.dtype == np.int8


@pytest.mark.parametrize("axis", [0, -2])
def test_scales_run_along_the_axis(axis):
    x = [[1, 2, 3], [-4, 0.5, 0.1]]
    codes = q.quantize(x, [0.03, 0.05], [0, 0], q.qint8, axis)
    assert codes.tolist() == [[33, 67, 100], [-80, 10, 2]]


def test_without_an_axis_vectors_run_along_the_last_one():
    assert q.quantize([[1, 1], [2, 2]], [1, 2], 0, q.qint8).tolist() == [[1, 0], [2, 1]]
    assert q.quantize([[1, 1]], 1.0, [0, 5], q.qint8, 0).tolist() == [[1, 6]]
    assert q.dequantize([[1, 1]], 1.0, [0, 5]).tolist() == [[1, -4]]


def test_a_single_scale_has_no_axis():
    assert q.quantize([[1, 2], [3, 4]], 0.5, 1, q.quint8, 7).tolist() == [[3, 5], [7, 9]]


def test_shapes_are_kept():
    for shape in [(), (0,), (2, 0, 3), (1, 2, 3)]:
        x = np.ones(shape, np.float32)
        codes = q.quantize(x, 1, 0, q.qint8)
        assert codes.shape == q.dequantize(codes, 1, 0).shape == shape
        assert q.fake_quantize(x, 1, 0, 0, 9).shape == shape
        assert q.fake_quantize_backward(x, x, 1, 0, 0, 9).shape == shape
        assert isinstance(codes, np.ndarray)


@pytest.mark.parametrize("scale", [0, -1, np.nan, np.inf, [0.1, 0.0, 0.1]])
def test_a_scale_must_be_positive_and_finite(scale):
    for call in calls(scale=scale):
        with pytest.raises(ValueError, match=r"scale of shape .* expected positive finite"):
            call()


@pytest.mark.parametrize(
    ("scale", "zero_point", "axis", "message"),
    [
        ([1, 1], [0, 0], 1, r"scale has shape \(2,\), expected \(3,\) for axis 1 .*\(2, 3\)"),
        ([1, 1], 0, None, r"scale has shape \(2,\), expected \(\) or \(3,\)"),
        ([1, 1], [0, 0, 0], 0, r"zero_point has shape \(3,\), expected \(2,\)"),
        ([[1, 1]], 0, 0, r"scale has shape \(1, 2\), expected \(2,\)"),
        (np.ones((4, 1, 1)), 0, None, r"scale has shape \(4, 1, 1\)"),
        (1, np.nan, None, r"zero_point of shape \(\) is not finite"),
    ],
)
def test_wrong_lengths_name_the_argument(scale, zero_point, axis, message):
    for call in calls(scale=scale, zero_point=zero_point, axis=axis):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_out_of_range(axis):
    for call in calls(scale=[1, 1], zero_point=[0, 0], axis=axis):
        with pytest.raises(IndexError, match=rf"ch_axis is {axis}, expected -2 \.\. 1 .*\(2, 3\)"):
            call()


def calls(scale=1, zero_point=0, axis=None):
    """Each of the four functions with these arguments."""
    bounds = (scale, zero_point, -8, 7, axis)
    return (
        lambda: q.quantize(X, scale, zero_point, q.qint8, axis),
        lambda: q.dequantize(X, scale, zero_point, axis),
        lambda: q.fake_quantize(X, *bounds),
        lambda: q.fake_quantize_backward(X, X, *bounds),
    )


def test_nan_has_no_code():
    with pytest.raises(ValueError, match=r"x of shape \(2,\) holds 1 NaN"):
        q.quantize([np.nan, 1], 1, 0, q.qint8)
    assert np.isnan(q.fake_quantize([np.nan], 1, 0, 0, 3)).all()
    assert q.fake_quantize_backward([5], [np.nan], 1, 0, 0, 3).tolist() == [0]


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="quantize needs zero_point and qdtype, or a QParams"):
        q.quantize(X, 1)
    with pytest.raises(ValueError, match="dequantize needs zero_point"):
        q.dequantize(X, 1)
    with pytest.raises(ValueError, match="fake_quantize needs zero_point, quant_min"):
        q.fake_quantize(X, 1, 0)
    with pytest.raises(ValueError, match="quant_min is 3, expected at most quant_max, 2"):
        q.fake_quantize(X, 1, 0, 3, 2)
    with pytest.raises(ValueError, match=r"dy has shape \(3,\), expected that of x, \(2, 3\)"):
        q.fake_quantize_backward([1, 1, 1], X, 1, 0, 0, 3)


def test_qparams_stand_for_all_that_follows():
    grid = q.QParams([0.5, 0.25], [1, 2], q.per_channel_affine, q.quint4, 0)
    x = np.array([[0.6, 99], [-9, 0.3]], np.float32)
    single = (grid.scale, grid.zero_point)
    codes = q.quantize(x, *single, q.quint4, 0)
    np.testing.assert_array_equal(q.quantize(x, grid), codes)
    np.testing.assert_array_equal(q.dequantize(codes, grid), q.dequantize(codes, *single, 0))
    bounds = (*single, 0, 15, 0)
    np.testing.assert_array_equal(q.fake_quantize(x, grid), q.fake_quantize(x, *bounds))
    np.testing.assert_array_equal(
        q.fake_quantize_backward(x, x, grid), q.fake_quantize_backward(x, x, *bounds)
    )


def test_the_gradient_counts_rounded_codes():
    x = [127.4, 127.5, 127.6, -128.4, -128.5, -128.6]
    ones = np.ones(6)
    assert q.fake_quantize_backward(ones, x, 1, 0, -128, 127).tolist() == [1, 0, 0, 1, 1, 0]
    assert q.fake_quantize_backward(3 * ones, x, 1, 0, -128, 127)[0] == 3
