"""Codes in memory: words, nibbles, lines and their errors. The laws are in tests/properties."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_fx.quantization.block import (
    Packing,
    QuantStore,
    QuantValue,
    pack,
    pack_e2m1x2,
    pack_i8s_to_u32s,
    pack_words,
    unpack,
    unpack_words,
)


def test_the_first_code_is_in_the_lowest_bits() -> None:
    codes = np.arange(8, dtype=np.int8) - 4
    (word,) = pack_words(codes, QuantValue.Q4S)
    assert word == sum((int(code) & 15) << (4 * k) for k, code in enumerate(codes))
    assert pack(codes, QuantValue.Q4S, QuantStore.PackedU32(0)).tobytes() == int(word).to_bytes(
        4, "little"
    )
    assert pack_e2m1x2([-0.5, 6.0, 100.0]) == bytes([0x79, 0x07])
    assert pack_i8s_to_u32s([1, 2, 3, 4, -1]).tolist() == [0x04030201, 0xFF]


def test_a_line_is_padded_to_whole_words_and_swapped_with_the_last_axis() -> None:
    codes = np.arange(2 * 3 * 4, dtype=np.int8).reshape(2, 3, 4)
    packed = pack(codes, QuantValue.Q8F, QuantStore.PackedU32(2)).reshape(4, 3, 4)
    np.testing.assert_array_equal(packed[..., :2], codes.swapaxes(0, 2))
    assert not packed[..., 2:].any()


def test_native_codes_take_a_byte_each() -> None:
    codes = np.array([[-7, 7], [0, -1]], np.int8)
    assert pack(codes, QuantValue.Q4S, QuantStore.Native).view(np.int8).tolist() == [-7, 7, 0, -1]


def test_scalars_and_empty_tensors() -> None:
    for store in (QuantStore.Native, QuantStore.PackedU32(0), QuantStore.PackedNative(0)):
        one = pack(np.int8(-2), QuantValue.Q2F, store)
        assert unpack(one, (), QuantValue.Q2F, store) == -2
        none = pack(np.empty((3, 0), np.int8), QuantValue.Q4F, store)
        assert none.size == 0
        assert unpack(none, (3, 0), QuantValue.Q4F, store).shape == (3, 0)
    assert pack_i8s_to_u32s([]).size == 0


@pytest.mark.parametrize(
    ("codes", "value", "word"),
    [
        ([8], QuantValue.Q4S, "from 8 to 8, but Q4S has 4 bits"),
        ([-3], QuantValue.Q2F, "codes from -2 to 1"),
        ([16], QuantValue.E2M1, "codes from -8 to 15"),
        ([1.0], QuantValue.Q8S, "float64, an invalid type"),
    ],
)
def test_codes_that_do_not_fit_are_refused(
    codes: list[float], value: QuantValue, word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        pack(codes, value, QuantStore.Native)


def test_axes_and_lengths_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"packed axis 2 .* out of range for a tensor of rank 2"):
        Packing.of(QuantValue.Q8F, QuantStore.PackedU32(2), (3, 4))
    data = np.zeros(9, np.uint8)
    with pytest.raises(ValueError, match=r"holds 9 bytes .* takes 12: every packed line is padded"):
        unpack(data, (3, 3), QuantValue.Q8S, QuantStore.PackedU32(0))
    with pytest.raises(ValueError, match="uint16"):
        unpack(data.astype(np.uint16), (9,), QuantValue.Q8S, QuantStore.Native)
    with pytest.raises(ValueError, match="holds 1 words, but 5 codes need 2"):
        unpack_words([1], 5, QuantValue.Q8S)
    assert unpack_words([0x04030201, 7, 9], 5, QuantValue.Q8S).tolist() == [1, 2, 3, 4, 7]
    with pytest.raises(ValueError, match="threads is 0"):
        pack([1], QuantValue.Q8S, QuantStore.Native, threads=0)
