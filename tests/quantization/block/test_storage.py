"""Quantized tensors as bytes, regions and their errors. Round trips are in tests/properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid_fx.quantization.block as b
from lucid_fx.quantization.block import (
    QuantizedBytes,
    QuantScheme,
    QuantStore,
    QuantValue,
    ScaleDtype,
)

NATIVE = QuantScheme(QuantValue.Q8S, QuantStore.Native)
TWO = NATIVE.per_block([2], ScaleDtype.UE4M3).per_tensor(ScaleDtype.F32)


def test_regions_follow_each_other_without_padding() -> None:
    stored = QuantizedBytes.new([1, 2, 3], [3], TWO, [0.5, 1.0], 2.0)
    assert stored.bytes.tobytes().hex() == "010203" + "3038" + "00000040"
    params = b.param_tensors(TWO, (3,))
    assert (params.scales.offset_start, params.scales.offset_end) == (3, 4)
    assert params.scales.metadata == b.ParamMetadata((2,), (1,))
    assert params.global_scale is not None
    assert (params.global_scale.offset_start, params.global_scale.offset_end) == (5, 0)
    assert (params.scales.dtype, params.global_scale.dtype) == (ScaleDtype.UE4M3, ScaleDtype.F32)


def test_descriptors_find_the_scales_in_their_stored_order() -> None:
    scheme = QuantScheme(QuantValue.Q8S, QuantStore.PackedU32(1)).per_block([2, 4], ScaleDtype.F32)
    stored = QuantizedBytes.new(np.zeros((4, 8), int), (4, 8), scheme, [1, 2, 3, 4])
    place = b.param_tensors(scheme, (4, 8)).scales
    end = stored.bytes.size - place.offset_end
    found = stored.bytes[place.offset_start : end].view("<f4").reshape(place.metadata.shape)
    assert found.tolist() == [[1, 3], [2, 4]]
    assert place.metadata.strides == (2, 1)
    assert stored.scales().block.tolist() == [1, 2, 3, 4]
    assert stored.num_elements() == 32


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("value", ["Q8F", "Q4S", "Q2F"])
def test_tensors_survive_bytes(dim: int, value: str) -> None:
    scheme = QuantScheme(QuantValue(value), QuantStore.PackedU32(dim))
    scheme = scheme.per_block([2, 3, 2], ScaleDtype.F16).per_tensor(ScaleDtype.F32)
    x = np.random.default_rng(0).standard_normal((5, 6, 7)).astype(np.float32)
    tensor = b.quantize(x, scheme)
    back = QuantizedBytes(QuantizedBytes.of(tensor).bytes.tobytes(), scheme, x.shape).to_tensor()
    np.testing.assert_array_equal(back.codes(), tensor.codes())
    assert back.qparams == tensor.qparams
    np.testing.assert_array_equal(b.dequantize(back), b.dequantize(tensor))


def test_float_codes_in_pairs() -> None:
    x = np.random.default_rng(1).standard_normal((4, 48)).astype(np.float32)
    tensor = b.quantize(x, b.nvfp4())
    stored = QuantizedBytes.of(tensor)
    assert stored.bytes.size == 4 * 24 + 4 * 3 + 4
    codes, scales = stored.into_vec_i8()
    assert codes.dtype == np.int8
    again = QuantizedBytes.new(codes, x.shape, b.nvfp4(), scales.block, scales.global_scale)
    assert again == stored


def test_what_does_not_fit_is_refused() -> None:
    words = QuantScheme(QuantValue.E4M3, QuantStore.PackedU32(0))
    narrow = TWO.per_tensor(ScaleDtype.F16)
    cases: list[tuple[Any, Any, Any, str]] = [  # codes, scheme, global scale
        ([1, 2, 3, 4], NATIVE, None, "do not fill"),
        ([200, 1], NATIVE, None, "Q8S has 8 bits"),
        ([0.5, 1.0], NATIVE, None, "float64, an invalid type"),
        ([1, 2], TWO, None, "requires a per-tensor scale"),
        ([1, 2], NATIVE, 1.0, "does not take a per-tensor scale"),
        ([1, 2], narrow, 1.0, "as f32"),
        ([1, 2], words, None, "float values"),
    ]
    for values, scheme, above, word in cases:
        with pytest.raises(ValueError, match=word):
            QuantizedBytes.new(values, (2,), scheme, [1.0], above)
    with pytest.raises(ValueError, match=r"holds 1 scales, but the shape \[4\] has 2"):
        QuantizedBytes.new([1] * 4, (4,), TWO, [1.0], 1.0)


@pytest.mark.parametrize("change", [-1, 1, 4])
def test_bytes_of_another_length_are_refused(change: int) -> None:
    scheme = QuantScheme(QuantValue.Q4F).per_block([8], ScaleDtype.F16)
    size = b.quantized_data_len(scheme, (3, 9))
    QuantizedBytes(np.zeros(size, np.uint8), scheme, (3, 9))
    with pytest.raises(ValueError, match=r"takes 24: every packed line is padded to whole words"):
        QuantizedBytes(np.zeros(size + change, np.uint8), scheme, (3, 9))
    with pytest.raises(ValueError, match=r"shorter \(3 bytes\) than the scales"):
        QuantizedBytes(np.zeros(3, np.uint8), scheme, (3, 9))
    with pytest.raises(ValueError, match="one axis of uint8"):
        QuantizedBytes(np.zeros((size, 1), np.uint8), scheme, (3, 9))
    with pytest.raises(ValueError, match="packed axis 4"):
        b.quantized_data_len(QuantScheme(store=QuantStore.PackedU32(4)), (2, 2))


def test_bytes_compare_by_value() -> None:
    one = QuantizedBytes.new([1, 2], [2], NATIVE, [1.0])
    assert one == QuantizedBytes.new([1, 2], [2], NATIVE, [1.0])
    assert one != QuantizedBytes.new([1, 2], [1, 2], NATIVE, [1.0])
    assert one != QuantizedBytes.new([1, 3], [2], NATIVE, [1.0])
    assert one != 3
