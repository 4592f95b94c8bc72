"""Code formats and stores."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_fx.quantization.block import QuantAcc, QuantPropagation, QuantStore, QuantValue

E = [QuantValue.E4M3, QuantValue.E5M2, QuantValue.E2M1]


def small_float(field: int, exponent_bits: int, mantissa_bits: int) -> float:
    """A float of a few bits without infinities, from its definition."""
    bias = 2 ** (exponent_bits - 1) - 1
    mantissa = field % 2**mantissa_bits / 2**mantissa_bits
    exponent = field >> mantissa_bits & (2**exponent_bits - 1)
    sign = -1.0 if field >> (exponent_bits + mantissa_bits) else 1.0
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias)
    return sign * (1 + mantissa) * 2.0 ** (exponent - bias)


def test_sorted_as_declared() -> None:
    names = "Q8F E5M2 E4M3 Q4F E2M1 Q2F Q8S Q4S Q2S"
    assert [value.name for value in sorted(QuantValue)] == names.split()
    assert QuantValue.Q8F < QuantValue.Q2S
    with pytest.raises(TypeError):
        assert QuantValue.Q8F < 3  # type: ignore[operator]


@pytest.mark.parametrize("value", E, ids=lambda value: value.name)
def test_float_tables_are_the_formats(value: QuantValue) -> None:
    table = value.table()
    exponent_bits, mantissa_bits = int(value.name[1]), int(value.name[3])
    for field, entry in enumerate(table.tolist()):
        if np.isfinite(entry):
            assert entry == small_float(field, exponent_bits, mantissa_bits)
    finite = table[np.isfinite(table)]
    assert (finite.min(), finite.max()) == value.range
    lost = {QuantValue.E4M3: 2, QuantValue.E5M2: 8, QuantValue.E2M1: 0}
    assert table.size - finite.size == lost[value]


@pytest.mark.parametrize("value", list(QuantValue), ids=lambda value: value.name)
def test_fields_and_codes_are_inverses(value: QuantValue) -> None:
    fields = np.arange(2**value.size_bits, dtype=np.uint8)
    codes = value.to_codes(fields)
    np.testing.assert_array_equal(value.to_fields(codes), fields)
    if not value.is_float:
        low, high = value.range
        assert (codes.min(), codes.max()) == (low - value.is_symmetric, high)
        np.testing.assert_array_equal(value.table(), codes)


def test_casts_take_the_nearest_and_keep_the_sign_of_zero() -> None:
    x = np.array([0.0, -0.0, 0.2, 0.25, 0.75, 2.5, -5.0, 6.0], np.float32)
    assert QuantValue.E2M1.cast(x).tolist() == [0, 8, 0, 0, 2, 4, 14, 7]


def test_stores_are_values() -> None:
    assert QuantStore.PackedU32(1) == QuantStore.PackedU32(1) != QuantStore.PackedU32(0)
    assert QuantStore.PackedU32() != QuantStore.PackedNative()
    assert len({QuantStore.Native, QuantStore.from_json({"kind": "Native"})}) == 1
    for store in (QuantStore.Native, QuantStore.PackedU32(3), QuantStore.PackedNative(1)):
        assert QuantStore.from_json(store.to_json()) == store
        assert hash(QuantStore.from_json(store.to_json())) == hash(store)


def test_stores_refuse_axes_that_make_no_sense() -> None:
    for kind, dim in (("Native", 0), ("PackedU32", None), ("PackedU32", -1)):
        with pytest.raises(ValueError, match=f"dim is {dim} for the store {kind}"):
            QuantStore.from_json({"kind": kind, "dim": dim})


def test_what_a_unit_holds() -> None:
    table = [
        (QuantStore.Native, QuantValue.Q4S, 4, 1),
        (QuantStore.Native, QuantValue.E2M1, 4, 1),
        (QuantStore.PackedNative(0), QuantValue.E2M1, 8, 2),
        (QuantStore.PackedNative(0), QuantValue.Q2S, 2, 1),
        (QuantStore.PackedU32(0), QuantValue.Q2S, 32, 16),
        (QuantStore.PackedU32(0), QuantValue.E5M2, 32, 4),
    ]
    for store, value, bits, count in table:
        assert (store.size_bits(value), store.num_quants(value)) == (bits, count)


def test_defaults() -> None:
    assert QuantAcc.default() is QuantAcc.F32
    assert QuantPropagation.default() is QuantPropagation.Inhibit
