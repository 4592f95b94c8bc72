"""Operations on quantized tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_fx.quantization.block as b
from lucid_fx.quantization.block import (
    QuantizedTensor,
    QuantPropagation,
    QuantScheme,
    QuantStore,
    QuantValue,
    ScaleDtype,
)

X = np.random.default_rng(0).standard_normal((4, 6, 8)).astype(np.float32)
PER_TENSOR = QuantScheme(QuantValue.Q8S, QuantStore.PackedU32(2))
BLOCKS = PER_TENSOR.per_block([2, 3, 4], ScaleDtype.F16)
PROPAGATE = QuantPropagation.Propagate


def test_inhibit_gives_floats_and_propagate_the_left_scheme() -> None:
    left, right = b.quantize(X, BLOCKS), b.quantize(X, PER_TENSOR)
    wanted = b.dequantize(left) * b.dequantize(right)
    found = b.propagate(np.multiply, left, right)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, wanted)
    again = b.propagate(np.multiply, left, right, propagation=PROPAGATE)
    assert isinstance(again, QuantizedTensor)
    assert again.scheme == BLOCKS
    assert again.data.tobytes() == b.quantize(wanted, BLOCKS).data.tobytes()
    mixed = b.propagate(np.add, X, right, propagation=PROPAGATE)
    assert isinstance(mixed, QuantizedTensor)
    assert mixed.scheme == PER_TENSOR
    with pytest.raises(ValueError, match="no quantized tensor"):
        b.propagate(np.add, X, X)


def test_a_result_of_lower_rank_moves_the_packed_axis() -> None:
    tensor = b.quantize(X, PER_TENSOR)
    total = b.propagate(lambda x: x.sum((0, 1)), tensor, propagation=PROPAGATE)
    assert isinstance(total, QuantizedTensor)
    assert (total.shape, total.scheme.packing_dim()) == ((8,), 0)


@pytest.mark.parametrize("scheme", [PER_TENSOR, BLOCKS])
@pytest.mark.parametrize("axes", [(2, 0, 1), (1, 0, 2), (0, 1, 2)])
def test_permuting_is_exact(scheme: QuantScheme, axes: tuple[int, ...]) -> None:
    tensor = b.quantize(X, scheme)
    moved = b.permute(tensor, axes)
    np.testing.assert_array_equal(moved.codes(), tensor.codes().transpose(axes))
    np.testing.assert_array_equal(b.dequantize(moved), b.dequantize(tensor).transpose(axes))
    back = b.permute(moved, np.argsort(axes).tolist())
    assert back.scheme == tensor.scheme
    assert back.data.tobytes() == tensor.data.tobytes()
    swapped = b.dequantize(b.swap_dims(tensor, 0, 2))
    np.testing.assert_array_equal(swapped, b.dequantize(tensor).swapaxes(0, 2))


MOVES: list[Any] = [
    lambda x: x.reshape(4, 48),
    lambda x: x[1:3],
    lambda x: x[..., 2],
    lambda x: np.flip(x, 1),
    lambda x: np.repeat(x, 2, 0),
    lambda x: np.take(x, [3, 0, 0], 2),
    lambda x: np.broadcast_to(x, (2, *x.shape)),
]


@pytest.mark.parametrize("operation", MOVES)
def test_moving_keeps_the_codes_of_one_scale(operation: Any) -> None:
    tensor = b.quantize(X, PER_TENSOR)
    moved = b.move(tensor, operation)
    assert moved.qparams == tensor.qparams
    np.testing.assert_array_equal(b.dequantize(moved), operation(b.dequantize(tensor)))


def test_moving_between_blocks_quantizes_again() -> None:
    tensor = b.quantize(X, BLOCKS)
    moved = b.move(tensor, lambda x: np.flip(x, 2))
    wanted = b.quantize(np.flip(b.dequantize(tensor), 2), BLOCKS)
    assert moved.data.tobytes() == wanted.data.tobytes()
    assert moved.qparams == wanted.qparams


@pytest.mark.parametrize("scheme", [PER_TENSOR, BLOCKS, PER_TENSOR.with_value(QuantValue.E4M3)])
def test_extremes_are_where_the_real_ones_are(scheme: QuantScheme) -> None:
    tensor = b.quantize(X, scheme)
    real = b.dequantize(tensor)
    np.testing.assert_array_equal(b.argmax(tensor, 1), real.argmax(1))
    np.testing.assert_array_equal(b.argmin(tensor, 2), real.argmin(2))


def test_ternary_products_add_and_scale_once() -> None:
    scheme = QuantScheme(QuantValue.Q2S, QuantStore.PackedU32(0))
    w, a = X[0], X[0, :, :6].T
    weight = b.quantize(w, scheme, calibration=b.Calibration.AbsMean)
    codes = weight.codes().astype(np.float64)
    found = b.ternary_matmul(a, weight)
    exact = a.astype(np.float64) @ codes * float(weight.qparams.scales[0])
    reach = np.abs(a) @ np.abs(codes) * float(weight.qparams.scales[0])
    assert (np.abs(found - exact) <= 8 * 2.0**-24 * reach).all()  # 6 terms, a difference, a product
    for bad in (b.quantize(w, scheme.with_value(QuantValue.Q2F)), b.quantize(w[0], scheme)):
        with pytest.raises(ValueError, match="must be a matrix of Q2S codes"):
            b.ternary_matmul(a, bad)
