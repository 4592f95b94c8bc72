"""From a quotient to a code: `Rounding`, and the encoders of integers, floats and tables.

Source: the block-scaled specification, section 9. A quotient is a real value divided by its scale:
a real value in code steps.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lucid_fx.native.block import (
    INTEGER_HALF_AWAY,
    INTEGER_HALF_EVEN,
    SMALL_FLOAT,
    NativeEncoder,
)
from lucid_fx.quantization.block.values import QuantMode, QuantValue


class Rounding(enum.Enum):
    """Which integer code a quotient halfway between two gets.

    ``half_away``: the one farther from zero. ``half_even``: the even one, as ONNX QuantizeLinear.
    Float codes always take the nearest, ties to the even code.
    """

    half_away = "half_away"
    half_even = "half_even"


class Encoder(Protocol):
    """Gives the code of every quotient."""

    def encode(self, quotient: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Codes, as bytes, of real values in code steps, which may be infinite."""

    def native(self) -> NativeEncoder | None:
        """The parameters of the native kernel that does the same, None without one."""


@dataclass(frozen=True)
class IntegerEncoder:
    """The nearest integer within ``low`` and ``high``."""

    low: float
    high: float
    rounding: Rounding

    def encode(self, quotient: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Int8 codes as bytes."""
        within = np.clip(quotient, np.float32(self.low), np.float32(self.high))
        if self.rounding is Rounding.half_even:
            return np.rint(within).astype(np.int8).view(np.uint8)
        towards_zero = np.trunc(within)
        rest = within - towards_zero  # exact
        away = np.copysign(np.float32(1), within)
        rounded = np.where(np.abs(rest) >= 0.5, towards_zero + away, towards_zero)
        return rounded.astype(np.int8).view(np.uint8)

    def native(self) -> NativeEncoder:
        """Parameters of the native kernel."""
        even = self.rounding is Rounding.half_even
        return NativeEncoder(INTEGER_HALF_EVEN if even else INTEGER_HALF_AWAY, self.low, self.high)


@dataclass(frozen=True)
class FloatEncoder:
    """The nearest float of a small format, saturating."""

    value: QuantValue

    def encode(self, quotient: NDArray[np.float32]) -> NDArray[np.uint8]:
        """The bits of the floats."""
        low, high = map(np.float32, self.value.range)
        return self.value.cast(np.clip(quotient, low, high))

    def native(self) -> NativeEncoder:
        """Parameters of the native kernel."""
        exponent_bits, mantissa_bits = int(self.value.name[1]), int(self.value.name[3])
        bias = 2 ** (exponent_bits - 1) - 1
        bits = self.value.size_bits
        return NativeEncoder(SMALL_FLOAT, *self.value.range, mantissa_bits, bias, bits)


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """The index of the nearest entry of a table; of two as near, the lower entry's."""

    table: NDArray[np.float32]

    def encode(self, quotient: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Unsigned indices."""
        order = np.argsort(self.table, kind="stable")
        entries = self.table[order].astype(np.float64)
        halfway = (entries[:-1] + entries[1:]) / 2
        return order.astype(np.uint8)[np.searchsorted(halfway, quotient)]

    def native(self) -> None:
        """There is no native kernel."""


def make_encoder(
    value: QuantValue, rounding: Rounding, mode: QuantMode, table: NDArray[np.float32] | None
) -> Encoder:
    """The encoder of a format.

    Args:
        value: the format of a code.
        rounding: of integers.
        mode: whether codes are indices of a table.
        table: the table, for Lookup.
    """
    if mode is QuantMode.Lookup and table is not None:
        return TableEncoder(table)
    if value.is_float:
        return FloatEncoder(value)
    return IntegerEncoder(*value.range, rounding)
