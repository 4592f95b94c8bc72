"""From a quotient to a code, near and on ties."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_fx.quantization.block import QuantMode, QuantValue, Rounding
from lucid_fx.quantization.block.rounding import TableEncoder, make_encoder


def codes(value: QuantValue, rounding: Rounding, quotient: list[float]) -> list[int]:
    encoder = make_encoder(value, rounding, QuantMode.Symmetric, None)
    found = encoder.encode(np.array(quotient, np.float32))
    return [int(code) for code in (found if value.is_float else found.view(np.int8))]


def test_halves() -> None:
    halves = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]
    assert codes(QuantValue.Q8S, Rounding.half_away, halves) == [-3, -2, -1, 1, 2, 3]
    assert codes(QuantValue.Q8S, Rounding.half_even, halves) == [-2, -2, 0, 0, 2, 2]


@pytest.mark.parametrize("rounding", list(Rounding))
def test_next_to_a_half_and_beyond_the_ends(rounding: Rounding) -> None:
    half = np.float32(0.5)
    near = [float(np.nextafter(half, np.float32(0))), -float(np.nextafter(half, np.float32(0)))]
    assert codes(QuantValue.Q8S, rounding, near) == [0, 0]
    over = [127.4, 127.5, 1e30, np.inf, -127.5, -np.inf]
    assert codes(QuantValue.Q8S, rounding, over) == [127, 127, 127, 127, -127, -127]
    assert codes(QuantValue.Q4F, rounding, [7.5, -8.5, -np.inf]) == [7, -8, -8]
    assert codes(QuantValue.Q2S, rounding, [-2.0, -0.4, 9.0]) == [-1, 0, 1]


def test_floats_ignore_the_rounding_of_integers() -> None:
    quotient = [0.2, 0.25, 1.25, 5.0, -np.inf, np.inf, -0.1]
    wanted = [0, 0, 2, 6, 15, 7, 8]
    for rounding in Rounding:
        assert codes(QuantValue.E2M1, rounding, quotient) == wanted


def test_tables_take_the_nearest_entry_and_the_lower_of_two() -> None:
    table = np.array([1, -1, 0.25, 0], np.float32)
    found = TableEncoder(table).encode(np.array([-9, -0.5, -0.4, 0.125, 0.13, 0.7, np.inf], "f4"))
    assert found.tolist() == [1, 1, 3, 3, 2, 0, 0]
