"""What one code can be and how codes lie in memory: `QuantValue`, `QuantStore`, `QuantMode`.

Source: the block-scaled specification, sections 2 and 3. A *code* is what is stored for one
element; a *field* is the same code as an unsigned number of `QuantValue.size_bits` bits.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

_FLOATS: dict[str, tuple[Any, float]] = {  # name: numpy type, largest value
    "E5M2": (ml_dtypes.float8_e5m2, 57344.0),
    "E4M3": (ml_dtypes.float8_e4m3fn, 448.0),
    "E2M1": (ml_dtypes.float4_e2m1fn, 6.0),
}


@functools.total_ordering
class QuantValue(enum.Enum):
    """The format of one code, in sort order (section 2).

    ``Q8F``, ``Q4F``, ``Q2F``: integers of 8, 4 and 2 bits, the full range. ``Q8S``, ``Q4S``,
    ``Q2S``: the same without the lowest code, so that the range is symmetric; Q2S is ternary.
    ``E5M2``, ``E4M3``: 8-bit floats. ``E2M1``: a 4-bit float, two of which fill a byte.
    """

    Q8F = "Q8F"
    E5M2 = "E5M2"
    E4M3 = "E4M3"
    Q4F = "Q4F"
    E2M1 = "E2M1"
    Q2F = "Q2F"
    Q8S = "Q8S"
    Q4S = "Q4S"
    Q2S = "Q2S"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, QuantValue):
            return NotImplemented
        order = list(QuantValue)
        return order.index(self) < order.index(other)

    @property
    def is_float(self) -> bool:
        """Whether codes are small floats, which are cast and not rounded to integers."""
        return self.name in _FLOATS

    @property
    def is_symmetric(self) -> bool:
        """Whether the range of *integer* codes is symmetric; False for every float format."""
        return self.name.endswith("S")

    @property
    def size_bits(self) -> int:
        """Bits of one code: 8, 4 or 2."""
        if self.is_float:
            return 4 if self is QuantValue.E2M1 else 8
        return int(self.name[1])

    @property
    def range(self) -> tuple[float, float]:
        """The real values, in code steps, of the lowest and the highest code."""
        if self.is_float:
            return -_FLOATS[self.name][1], _FLOATS[self.name][1]
        highest = float(2 ** (self.size_bits - 1) - 1)
        return (-highest if self.is_symmetric else -highest - 1), highest

    @property
    def native_packing(self) -> int:
        """How many codes the smallest unit of the format itself holds: 2 for E2M1, else 1."""
        return 2 if self is QuantValue.E2M1 else 1

    def to_codes(self, fields: NDArray[np.uint8]) -> NDArray[Any]:
        """Codes of unsigned fields: sign-extended int8 for integers, uint8 for floats.

        Args:
            fields: unsigned numbers of `size_bits` bits, any shape.
        """
        if self.is_float:
            return fields
        unused = 8 - self.size_bits
        return (fields << unused).view(np.int8) >> np.int8(unused)

    def to_fields(self, codes: NDArray[Any]) -> NDArray[np.uint8]:
        """Unsigned fields of codes: the low `size_bits` bits of their two's complement."""
        return codes.view(np.uint8) & np.uint8(2**self.size_bits - 1)

    def table(self) -> NDArray[np.float32]:
        """The real value, in code steps, of every field: float32, shape ``(2**size_bits,)``."""
        fields = np.arange(2**self.size_bits, dtype=np.uint8)
        if self.is_float:
            return np.asarray(fields.view(_FLOATS[self.name][0]).astype(np.float32))
        return self.to_codes(fields).astype(np.float32)

    def cast(self, quotient: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Fields of the float format nearest to real values, ties to the even code.

        Args:
            quotient: real values in code steps, within `range`; a negative zero keeps its sign.
        """
        cast = np.asarray(quotient.astype(_FLOATS[self.name][0]).view(np.uint8))
        return cast & np.uint8(2**self.size_bits - 1)


class QuantMode(enum.Enum):
    """How a code gives a real value (section 9).

    ``Symmetric``: code times scale; no zero point exists. ``Lookup``: the code is an unsigned index
    into a table of ``2**size_bits`` entries, and the entry is multiplied by the scale; the table
    travels separately.
    """

    Symmetric = "Symmetric"
    Lookup = "Lookup"


class StoreKind(enum.Enum):
    """The alternatives of `QuantStore`."""

    Native = "Native"
    PackedNative = "PackedNative"
    PackedU32 = "PackedU32"


@dataclass(frozen=True)
class QuantStore:
    """How codes are put into memory (section 3).

    An alternative with its argument, spelt ``QuantStore.Native``, ``QuantStore.PackedNative(dim)``
    or ``QuantStore.PackedU32(dim)``; stores compare and hash by value.

    ``Native`` holds one code a byte. ``PackedU32`` fills little-endian 32-bit words along the
    packed axis, the first code in the lowest bits, every line padded with zeros to whole words.
    ``PackedNative`` fills the format's own unit: bytes of two codes for E2M1, else one code a byte.

    Attributes:
        kind: which alternative.
        dim: the packed axis, counted from the innermost (0 is the last axis); None for Native.

    Raises:
        ValueError: a packed store without, or Native with, a packed axis; a negative axis.
    """

    kind: StoreKind
    dim: int | None = None

    Native: ClassVar[QuantStore]

    def __post_init__(self) -> None:
        packed = self.kind is not StoreKind.Native
        if packed != (self.dim is not None) or (self.dim is not None and self.dim < 0):
            raise ValueError(
                f"dim is {self.dim} for the store {self.kind.value}: give an axis counted from the"
                " innermost (0, 1, ...) to the packed stores, and none to Native"
            )

    @classmethod
    def PackedNative(cls, dim: int = 0) -> QuantStore:
        """Units of the format itself along the axis ``dim``, counted from the innermost."""
        return cls(StoreKind.PackedNative, dim)

    @classmethod
    def PackedU32(cls, dim: int = 0) -> QuantStore:
        """Little-endian 32-bit words along the axis ``dim``, counted from the innermost."""
        return cls(StoreKind.PackedU32, dim)

    def size_bits(self, value: QuantValue) -> int:
        """Bits of one stored unit that holds codes of ``value``."""
        if self.kind is StoreKind.PackedU32:
            return 32
        packing = value.native_packing if self.kind is StoreKind.PackedNative else 1
        return value.size_bits * packing

    def num_quants(self, value: QuantValue) -> int:
        """Codes of ``value`` in one stored unit."""
        return self.size_bits(value) // value.size_bits

    def to_json(self) -> dict[str, Any]:
        """``{"kind": ..., "dim": ...}``; ``dim`` is left out for Native."""
        return {"kind": self.kind.value} | ({} if self.dim is None else {"dim": self.dim})

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> QuantStore:
        """Read what `to_json` gave."""
        return cls(StoreKind(fields["kind"]), fields.get("dim"))


QuantStore.Native = QuantStore(StoreKind.Native)


class QuantAcc(enum.Enum):
    """The precision in which products of codes are summed (section 11); F32 unless told."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"

    @classmethod
    def default(cls) -> QuantAcc:
        """F32."""
        return cls.F32


class QuantPropagation(enum.Enum):
    """What an operation on quantized tensors gives (section 9).

    ``Propagate``: a tensor quantized again with the scheme of its operand. ``Inhibit``, the
    default: a float tensor.
    """

    Propagate = "Propagate"
    Inhibit = "Inhibit"

    @classmethod
    def default(cls) -> QuantPropagation:
        """Inhibit."""
        return cls.Inhibit
