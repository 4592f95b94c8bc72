"""`WeightConfig`: how the weight of one matrix product is stored, and how its codes are chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from lucid_fx.quantization.block import QuantMode, QuantScheme, QuantValue, ScaleDtype

Method = Literal["rtn", "hqq", "gptq"]
Compute = Literal["int8", "float32"]

BLOCK_SIZES = (16, 32, 64, 128, 256)
"""Rows that can share a scale: what the kernels of MatMulInt4 and of MatMulNBits both take."""

SCALE_DTYPES = (ScaleDtype.F32, ScaleDtype.F16, ScaleDtype.BF16, ScaleDtype.UE4M3)
"""Formats of scales that MatMulInt4 reads."""

SCHEMES = ("int4", "uint4", "int8", "uint8", "int2", "uint2")
"""Names of schemes; those with a u have zero points."""


@dataclass(frozen=True)
class WeightConfig:
    """Codes of 2, 4 or 8 bits with a scale for each block of a column.

    Attributes:
        value: the format of a code; Q4F by default.
        block_size: rows of a column (elements along K) that share a scale; 32 by default.
        scale: the format of scales; F16 by default. UE4M3 scales are relative to one float32 scale
            over the whole matrix.
        zero_points: store the code of zero for each block; codes are unsigned then.
        method: how codes are chosen: ``"rtn"`` (round to nearest), ``"hqq"`` (refined scales and
            zero points, no data) or ``"gptq"`` (errors made up for on activations).
        compute: how the product runs: ``"int8"`` rounds activations to 8 bits block by block,
            ``"float32"`` does not.

    Raises:
        ValueError: a combination that no kernel takes.
    """

    value: QuantValue = QuantValue.Q4F
    block_size: int = 32
    scale: ScaleDtype = ScaleDtype.F16
    zero_points: bool = False
    method: Method = "rtn"
    compute: Compute = "int8"

    def __post_init__(self) -> None:
        if not isinstance(self.value, QuantValue) or self.value.is_float:
            raise _refusal("value", self.value, "an integer format from Q2F to Q8S")
        if isinstance(self.block_size, bool) or self.block_size not in BLOCK_SIZES:
            raise _refusal(
                "block_size", self.block_size, f"one of {', '.join(map(str, BLOCK_SIZES))}"
            )
        if self.scale not in SCALE_DTYPES:
            raise _refusal("scale", self.scale, f"one of {', '.join(s.name for s in SCALE_DTYPES)}")
        if self.method not in get_args(Method):
            raise _refusal("method", self.method, f"one of {', '.join(get_args(Method))}")
        if self.compute not in get_args(Compute):
            raise _refusal("compute", self.compute, f"one of {', '.join(get_args(Compute))}")
        if self.zero_points and self.value.is_symmetric:
            raise _refusal("value", self.value.name, "a full-range format (Q4F) beside zero points")

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return self.value.size_bits

    @property
    def low(self) -> int:
        """The least stored code: symmetric formats do without the code ``-2**(bits - 1)``."""
        return 1 if self.value.is_symmetric else 0

    @property
    def middle(self) -> int:
        """The stored code of zero where there are no zero points."""
        return 1 << (self.bits - 1)

    @property
    def highest(self) -> int:
        """The greatest stored code."""
        return (1 << self.bits) - 1

    @property
    def op_value(self) -> str:
        """The attribute ``value`` of MatMulInt4: Q4F and its kin, or U4 with zero points."""
        return f"U{self.bits}" if self.zero_points else self.value.name

    @property
    def bits_per_weight(self) -> float:
        """Bits that a weight takes with its share of the scale and the zero point of a block."""
        zero_point = 8 if self.zero_points else 0
        return self.bits + (8 * self.scale.size + zero_point) / self.block_size

    def __str__(self) -> str:
        """Such as ``U4, block 32, F16 scales, hqq``."""
        return f"{self.op_value}, block {self.block_size}, {self.scale.name} scales, {self.method}"

    @classmethod
    def parse(cls, scheme: WeightConfig | QuantScheme | str, **overrides: Any) -> WeightConfig:
        """A configuration from what a user gives.

        Args:
            scheme: ``"int2"``, ``"int4"``, ``"int8"`` (no zero points), ``"uint2"``, ``"uint4"``,
                ``"uint8"`` (with zero points), a scheme whose block extends along one axis, or a
                configuration.
            overrides: fields that win over those of ``scheme``; None stands for not given.

        Raises:
            ValueError: an unknown name, or what no kernel takes.
        """
        if isinstance(scheme, WeightConfig):
            found = scheme
        elif isinstance(scheme, QuantScheme):
            found = _of_scheme(scheme)
        else:
            if scheme not in SCHEMES:
                raise _refusal("scheme", scheme, f"one of {', '.join(SCHEMES)}")
            value = QuantValue[f"Q{scheme[-1]}F"]
            found = cls(value=value, zero_points=scheme.startswith("u"))
        return replace(found, **{k: v for k, v in overrides.items() if v is not None})


def _of_scheme(scheme: QuantScheme) -> WeightConfig:
    size, dtype = scheme.block_size(), scheme.scale_dtype()
    extents = [] if size is None else [extent for extent in size if extent > 1]
    if len(extents) != 1:
        raise _refusal(
            "block", None if size is None else list(size), "one extent greater than 1, along K"
        )
    if scheme.mode is not QuantMode.Symmetric:
        raise _refusal("mode", scheme.mode.name, "Symmetric")
    if (scheme.num_levels() == 2) != (dtype is ScaleDtype.UE4M3):
        raise _refusal(
            "tensor", scheme.tensor and scheme.tensor.name,
            "F32 with block scales of UE4M3, and no scale over the tensor with others",
        )  # fmt: skip
    if scheme.num_levels() == 2 and scheme.tensor is not ScaleDtype.F32:
        raise _refusal("tensor", scheme.tensor, "F32")
    return WeightConfig(value=scheme.value, block_size=extents[0], scale=dtype)


def _refusal(field: str, given: object, wanted: str) -> ValueError:
    shown = getattr(given, "name", given)
    return ValueError(f"{field} is {shown!r}: give {wanted}")
