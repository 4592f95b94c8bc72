"""Weights and configurations that the tests of this folder share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lucid_fx.quantization.block import QuantValue, ScaleDtype
from lucid_fx.quantization.weight_only import WeightConfig

CONFIGS = [
    WeightConfig(),
    WeightConfig(QuantValue.Q4S, block_size=16, scale=ScaleDtype.F32),
    WeightConfig(QuantValue.Q2F, block_size=64, scale=ScaleDtype.BF16),
    WeightConfig(QuantValue.Q8F, block_size=128),
    WeightConfig(zero_points=True),
    WeightConfig(QuantValue.Q2F, zero_points=True),
    WeightConfig(QuantValue.Q8F, zero_points=True, scale=ScaleDtype.F32),
    WeightConfig(block_size=16, scale=ScaleDtype.UE4M3),
    WeightConfig(scale=ScaleDtype.UE4M3, zero_points=True),
]
"""Every width, scale format and block rule at least once."""


def weights(k: int = 200, n: int = 40, seed: int = 0) -> NDArray[np.float32]:
    """Normal weights with a few large ones, a column of zeros and a column of one sign."""
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((k, n)).astype(np.float32) / 8
    w[rng.integers(0, k, n), np.arange(n)] *= 6
    w[:, 3], w[:, 5] = 0, np.abs(w[:, 5])
    return w
