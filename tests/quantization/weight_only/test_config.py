"""What a weight configuration takes, and what it says of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from lucid_fx.quantization.block import QuantMode, QuantScheme, QuantValue, ScaleDtype, nvfp4
from lucid_fx.quantization.weight_only import WeightConfig


@pytest.mark.parametrize(
    ("name", "value", "zero_points", "op_value", "low", "highest"),
    [
        ("int2", QuantValue.Q2F, False, "Q2F", 0, 3),
        ("int4", QuantValue.Q4F, False, "Q4F", 0, 15),
        ("int8", QuantValue.Q8F, False, "Q8F", 0, 255),
        ("uint2", QuantValue.Q2F, True, "U2", 0, 3),
        ("uint4", QuantValue.Q4F, True, "U4", 0, 15),
        ("uint8", QuantValue.Q8F, True, "U8", 0, 255),
    ],
)
def test_names(
    name: str, value: QuantValue, zero_points: bool, op_value: str, low: int, highest: int
) -> None:
    config = WeightConfig.parse(name)
    assert (config.value, config.zero_points, config.op_value) == (value, zero_points, op_value)
    assert (config.low, config.middle, config.highest) == (low, (highest + 1) // 2, highest)


def test_symmetric_values_do_without_the_lowest_code() -> None:
    assert WeightConfig(value=QuantValue.Q4S).low == 1


def test_bits_per_weight_count_scales_and_zero_points() -> None:
    assert WeightConfig().bits_per_weight == 4 + 16 / 32
    assert WeightConfig.parse("uint4", block_size=128).bits_per_weight == 4 + 24 / 128


def test_overrides_win_and_none_is_not_given() -> None:
    config = WeightConfig.parse("int4", block_size=128, method=None, compute="float32")
    assert config == WeightConfig(block_size=128, compute="float32")
    assert WeightConfig.parse(config, zero_points=True) == WeightConfig(
        block_size=128, compute="float32", zero_points=True
    )


@pytest.mark.parametrize("block", [[64], [64, 1]])
def test_a_scheme_has_its_block_along_k(block: list[int]) -> None:
    scheme = QuantScheme(QuantValue.Q4S).per_block(block, ScaleDtype.BF16)
    wanted = WeightConfig(QuantValue.Q4S, block_size=64, scale=ScaleDtype.BF16)
    assert WeightConfig.parse(scheme) == wanted


def test_two_levels_are_small_scales_under_one() -> None:
    scheme = (
        QuantScheme(QuantValue.Q4F).per_block([16], ScaleDtype.UE4M3).per_tensor(ScaleDtype.F32)
    )
    assert WeightConfig.parse(scheme) == WeightConfig(block_size=16, scale=ScaleDtype.UE4M3)


BLOCKS = QuantScheme(QuantValue.Q4F).per_block([32], ScaleDtype.F16)


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        ("int3", "scheme is 'int3': give one of int4, uint4, int8, uint8, int2, uint2"),
        (QuantScheme(), "block is None: give one extent greater than 1, along K"),
        (BLOCKS.per_block([4, 8], ScaleDtype.F16), "block is [4, 8]: give one extent"),
        (BLOCKS.per_block([48], ScaleDtype.F16), "block_size is 48: give one of 16, 32, 64"),
        (BLOCKS.with_mode(QuantMode.Lookup), "mode is 'Lookup': give Symmetric"),
        (BLOCKS.per_block([32], ScaleDtype.UE4M3), "tensor is None: give F32 with block scales"),
        (BLOCKS.per_tensor(ScaleDtype.F32), "tensor is 'F32': give F32 with block scales of UE4M3"),
        (BLOCKS.per_block([32], ScaleDtype.UE8M0), "scale is 'UE8M0': give one of F32, F16"),
        (nvfp4(), "value is 'E2M1': give an integer format"),
    ],
)
def test_refused_schemes(scheme: Any, text: str) -> None:
    with pytest.raises(ValueError) as error:
        WeightConfig.parse(scheme)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"value": "Q4F"}, "value is 'Q4F': give an integer format"),
        ({"block_size": 8}, "block_size is 8"),
        ({"block_size": True}, "block_size is True"),
        ({"method": "awq"}, "method is 'awq': give one of rtn, hqq, gptq"),
        ({"compute": "int4"}, "compute is 'int4': give one of int8, float32"),
        ({"value": QuantValue.Q4S, "zero_points": True}, "value is 'Q4S': give a full-range"),
    ],
)
def test_refused_fields(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as error:
        WeightConfig(**fields)
    assert str(error.value).startswith(text)
