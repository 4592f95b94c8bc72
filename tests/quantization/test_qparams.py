"""From a range to a grid, and grids as values."""

import json

import numpy as np
import pytest

import lucid_fx.quantization as q


def made(low, high, scheme=q.per_tensor_affine, dtype=q.quint8, **eps):
    scale, zero_point = q.calculate_qparams(low, high, scheme, dtype, **eps)
    return scale.tolist(), zero_point.tolist()


def test_the_range_is_widened_to_zero():
    assert made(2, 6) == made(0, 6)
    assert made(-6, -2) == made(-6, 0)
    assert made(3, 3, dtype=q.qint8) == (float(np.float32(3) / np.float32(255)), -128)


def test_a_range_of_no_width_gets_the_smallest_scale():
    least = float(np.float32(1e-8))
    assert made(0, 0) == (least, 0)
    assert made(0, 0, dtype=q.qint8) == (least, -128)
    assert made(5, -5) == (least, 0)
    assert made(np.inf, -np.inf) == (least, 0)  # an observer that has seen nothing
    assert made(0, 0, q.per_tensor_symmetric) == (least, 128)
    assert made(-0.004, 0.004, eps=0.01) == (float(np.float32(0.01)), 0)


def test_symmetric_grids_take_the_larger_end_over_half_the_codes():
    assert made(-2.5, 2, q.per_tensor_symmetric, q.qint8)[0] == float(np.float32(2.5 / 127.5))
    assert made(-3, 1.5, q.per_tensor_symmetric, q.qint4) == (float(np.float32(0.4)), 0)
    assert made(-1, 1, q.per_channel_symmetric, q.quint4)[1] == 8


def test_int32_grids():
    scale, zero = q.calculate_qparams(-1000, 0, q.per_tensor_affine, q.qint32)
    grid = q.QParams(scale, zero, q.per_tensor_affine, q.qint32)
    assert grid.zero_point_codes() == 2**31 - 1  # 2**31, which is what float32 holds, overflows


def test_shapes_go_through_and_one_end_may_be_a_number():
    scale, zero = made([-1, 0, -4], [3, 2, 0.5])
    assert len(scale) == 3 and zero == [64, 0, 227]
    assert made([-1, -4], 2)[1] == [made(-1, 2)[1], made(-4, 2)[1]]
    with pytest.raises(ValueError, match=r"max_val has shape \(3,\), expected .* \(2,\)"):
        made([1, 2], [1, 2, 3])


@pytest.mark.parametrize(
    ("low", "high", "name"),
    [(np.nan, 1, "min_val"), (0, np.nan, "max_val"), (-np.inf, 1, "min_val"), (0, np.inf, "max_v"),
     ([0, np.nan], [1, 1], "min_val")],
)  # fmt: skip
@pytest.mark.parametrize("scheme", [q.per_tensor_affine, q.per_tensor_symmetric])
def test_ends_must_be_finite(low, high, name, scheme):
    with pytest.raises(ValueError, match=f"{name}.* expected finite numbers"):
        made(low, high, scheme)


@pytest.mark.parametrize("eps", [0, -1, np.nan])
def test_the_smallest_scale_must_be_positive(eps):
    with pytest.raises(ValueError, match=r"eps is .* expected a positive number"):
        made(0, 0, eps=eps)


def test_ends_further_apart_than_float32_reaches():
    scale, zero = made(-3e38, 3e38)
    assert scale == pytest.approx(6e38 / 255, rel=1e-6)
    assert zero in (127, 128)  # a tie, rounded


GRID = q.QParams([0.1, 0.2], [3, 5], q.per_channel_affine, q.quint8, 1)


def test_equal_numbers_are_equal_grids():
    again = q.QParams(np.float32([0.1, 0.2]), [3.0, 5.0], q.per_channel_affine, q.quint8, 1)
    assert again == GRID and len({again, GRID}) == 1
    for other in (
        q.QParams([0.1, 0.3], [3, 5], q.per_channel_affine, q.quint8, 1),
        q.QParams([0.1, 0.2], [3, 4], q.per_channel_affine, q.quint8, 1),
        q.QParams([0.1, 0.2], [3, 5], q.per_channel_symmetric, q.quint8, 1),
        q.QParams([0.1, 0.2], [3, 5], q.per_channel_affine, q.qint8, 1),
        q.QParams([0.1, 0.2], [3, 5], q.per_channel_affine, q.quint8, 0),
        None,
    ):
        assert other != GRID
    assert q.QParams(1, -0.0, *KIND) == q.QParams(1, 0.0, *KIND)


KIND = (q.per_tensor_affine, q.quint8)


def test_a_grid_does_not_change():
    scale = np.array([0.1, 0.2], np.float32)
    grid = q.QParams(scale, [3, 5], q.per_channel_affine, q.quint8, 1)
    scale[0] = 9
    assert grid == GRID
    with pytest.raises(ValueError, match="read-only"):
        grid.scale[0] = 9


def test_scale_and_zero_point_have_one_shape_and_codes_are_whole():
    with pytest.raises(ValueError, match=r"zero_point has shape \(\), expected scale's \(2,\)"):
        q.QParams([1, 1], 0, *KIND)
    with pytest.raises(ValueError, match="no integer"):
        q.QParams(1, 0.5, *KIND)


def test_range_and_codes():
    low, high = GRID.range
    np.testing.assert_allclose(low, [-0.3, -1.0], rtol=1e-6)
    np.testing.assert_allclose(high, [25.2, 50.0], rtol=1e-6)
    assert GRID.zero_point_codes().dtype == np.uint8


def test_json_keeps_a_grid_of_ones_own():
    own = q.QDtype("ternary", 2, True, -1, 1, "int8")
    grid = q.QParams(0.1, 0, q.per_tensor_symmetric, own)
    assert q.QParams.from_json(json.dumps(json.loads(grid.to_json()))) == grid
