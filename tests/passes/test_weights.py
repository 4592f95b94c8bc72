"""Codes of weights and biases that no kernel of the target can get wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lucid_fx.passes.weights import PAIR_LIMIT, QuantizedWeight, pair_sums, quantize_weight
from lucid_fx.quantization import (
    PerChannelMinMaxObserver,
    dequantize,
    per_channel_affine,
    quantize,
    quint8,
)

MATMUL, GEMM = ir.node("MatMul", []), ir.node("Gemm", [])
CONV = ir.node("Conv", [])


def conv(group: int) -> ir.Node:
    return ir.node("Conv", [], {"group": group})


def quantized(node: ir.Node, weight: NDArray[Any], axis: int, **more: Any) -> QuantizedWeight:
    return quantize_weight(
        node, np.asarray(weight, np.float32), axis, PerChannelMinMaxObserver(), **more
    )


# --- saturation of 16-bit pair sums ---------------------------------------------------------


def saturating_dot(x: NDArray[np.uint8], column: NDArray[np.int8]) -> int:
    """The AVX2 kernel: products of neighbours are added in 16 bits, then in 32."""
    products = x.astype(np.int64) * column.astype(np.int64)
    if len(products) % 2:
        products = np.append(products, 0)
    pairs = products.reshape(-1, 2).sum(axis=1)
    return int(np.clip(pairs, -(2**15), 2**15 - 1).sum())


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 4))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_after_repair_the_16_bit_kernel_is_exact(seed: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.choice([-1.0, 1.0, 0.3, 0.01], (rows, columns)) * rng.choice([1, 1e-3, 50])
    result = quantized(MATMUL, weight, 1, saturates=True)
    for x in (np.full(rows, 255, np.uint8), rng.integers(0, 256, rows).astype(np.uint8)):
        for column in result.codes.T:
            exact = int((x.astype(np.int64) * column.astype(np.int64)).sum())
            assert saturating_dot(x, column) == exact


def test_only_risky_channels_get_a_coarser_grid() -> None:
    weight = np.array([[1.0, 1.0], [1.0, -1.0], [0.1, 0.2], [0.1, 0.2]])
    free, repaired = quantized(MATMUL, weight, 1), quantized(MATMUL, weight, 1, saturates=True)
    assert pair_sums(MATMUL, free.codes, 1).tolist() == [254, 127]
    assert pair_sums(MATMUL, repaired.codes, 1).max() <= PAIR_LIMIT
    assert repaired.qparams.scale[0] > free.qparams.scale[0]
    assert repaired.qparams.scale[1] == free.qparams.scale[1]
    assert repaired.repairs[0].startswith("1 of 2 channels got a coarser weight grid")
    error = np.abs(dequantize(repaired.codes, repaired.qparams) - weight).max(axis=0)
    assert (error <= repaired.qparams.scale / 2 * 1.001).all()  # rounding, no clipping


def test_pairs_of_a_conv_are_neighbouring_channels() -> None:
    """Its input is gathered channels-last: (c0, c1) of each kernel cell, not cells of a channel."""
    codes = np.zeros((1, 2, 1, 2), np.int8)
    codes[0, :, 0, 0] = 100, 100
    assert pair_sums(CONV, codes, 0).tolist() == [200]
    codes[0, :, 0, 0], codes[0, 0, 0] = (0, 0), (100, 100)
    assert pair_sums(CONV, codes, 0).tolist() == [100]


def test_depthwise_convs_need_no_repair() -> None:
    """Their kernel adds in 32 bits."""
    result = quantized(conv(2), np.ones((2, 1, 3, 3)), 0, saturates=True)
    assert result.repairs == () and result.codes.max() == 127


def test_targets_that_do_not_saturate_keep_full_codes() -> None:
    result = quantized(MATMUL, np.ones((64, 3)), 1)
    assert result.repairs == () and (result.codes == 127).all()


# --- biases ---------------------------------------------------------------------------------


def test_a_bias_is_coded_on_the_grid_of_the_products() -> None:
    result = quantized(CONV, np.full((2, 1, 1, 1), 127.5), 0, bias=np.array([1.0, -2.0]),
                       input_scale=0.5)  # fmt: skip
    assert result.bias is not None and result.bias.dtype == np.int32
    assert result.bias.tolist() == [2, -4]


@pytest.mark.parametrize("observer", [
    PerChannelMinMaxObserver,
    PerChannelMinMaxObserver.with_args(ch_axis=0, qscheme=per_channel_affine, qdtype=quint8),
])  # fmt: skip
def test_a_bias_that_overflows_raises_the_weight_scale_of_its_channel(observer: Any) -> None:
    """Weights of 1e-7, a bias of 5: more than 2**31 product steps."""
    weight = np.array([1e-7, 1.0], np.float32).reshape(2, 1, 1, 1)
    bias = np.array([5.0, 5.0], np.float32)
    result = quantize_weight(CONV, weight, 0, observer(), bias=bias, input_scale=1e-3)
    assert result.bias is not None
    step = np.float64(1e-3) * result.qparams.scale
    np.testing.assert_allclose(result.bias * step, bias, rtol=1e-6)
    plain = quantize_weight(CONV, weight, 0, observer())
    assert result.qparams.scale[1] == plain.qparams.scale[1]
    assert "int32" in result.repairs[0]


def test_without_a_static_input_grid_the_bias_stays_real() -> None:
    assert quantized(MATMUL, np.ones((2, 2)), 1, bias=np.ones(2)).bias is None


# --- dead and nearly dead channels ----------------------------------------------------------


def test_a_dead_channel_has_zero_codes_and_a_usable_scale() -> None:
    """Other tools write a scale of zero."""
    weight = np.array([0.0, 1.0]).reshape(2, 1, 1, 1)
    result = quantized(CONV, weight, 0, bias=np.array([0.25, 0.25]), input_scale=0.1)
    assert result.codes.reshape(-1).tolist() == [0, 127]
    assert (result.qparams.scale > 0).all() and np.isfinite(result.qparams.scale).all()
    assert result.bias is not None
    step = np.float64(0.1) * result.qparams.scale
    np.testing.assert_allclose(result.bias * step, 0.25, atol=step.max())


def test_a_channel_of_1e_6_keeps_its_codes() -> None:
    """Scales end at 1e-8 (`DEFAULT_EPS`): 100 codes are left of 127, none are lost to zero."""
    weight = np.array([[1e-6, 0.5e-6], [1.0, 0.5]]).reshape(2, 2, 1, 1)
    result = quantized(CONV, weight, 0)
    assert result.codes.reshape(2, 2).tolist() == [[100, 50], [127, 64]]


# --- bias correction ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "shape", "axis", "channels"),
    [
        pytest.param(CONV, (4, 3, 3, 3), 0, 3, id="dense Conv"),
        pytest.param(conv(3), (6, 1, 3, 3), 0, 3, id="depthwise Conv, two filters a channel"),
        pytest.param(conv(2), (4, 3, 1, 1), 0, 6, id="grouped Conv"),
        pytest.param(GEMM, (5, 4), 1, 5, id="Gemm"),
    ],
)
def test_the_bias_takes_up_the_mean_error_of_the_weight(
    node: ir.Node, shape: tuple[int, ...], axis: int, channels: int
) -> None:
    """For an input that is its channel mean everywhere, the output is right to half a step."""
    rng = np.random.default_rng(0)
    weight, mean = rng.standard_normal(shape).astype(np.float32), rng.uniform(1, 2, channels)
    bias = np.zeros(shape[axis], np.float32)
    result = quantized(node, weight, axis, bias=bias, input_scale=1e-4, input_mean=mean)
    assert result.bias is not None
    rounded = dequantize(result.codes, result.qparams)
    step = np.float64(1e-4) * result.qparams.scale
    wanted = response(node, weight, mean)
    found = response(node, rounded, mean) + result.bias * step
    assert np.abs(found - wanted).max() <= step.max() / 2 + 1e-6
    assert np.abs(response(node, rounded, mean) - wanted).max() > 10 * step.max()


def response(node: ir.Node, weight: NDArray[Any], mean: NDArray[Any]) -> NDArray[Any]:
    """What a linear op gives for a constant input: the definition."""
    weight = np.asarray(weight, np.float64)
    if node.op_type != "Conv":
        return np.asarray(mean @ weight)
    group = node.attributes["group"].as_int() if "group" in node.attributes else 1
    per_group = len(mean) // group
    rows = []
    for index, kernel in enumerate(weight):
        first = index // (len(weight) // group) * per_group
        rows.append(sum(kernel[c].sum() * mean[first + c] for c in range(per_group)))
    return np.array(rows)


def test_codes_are_those_of_the_grid() -> None:
    weight = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    result = quantized(MATMUL, weight, 1)
    np.testing.assert_array_equal(result.codes, quantize(weight, result.qparams))
