"""Rounding to nearest: grids from the extremes of each block, and nothing else."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from lucid_fx.quantization.weight_only.config import WeightConfig
from lucid_fx.quantization.weight_only.grids import encode, extremes, grid_of_extremes
from lucid_fx.quantization.weight_only.matrix import QuantizedMatrix


def round_to_nearest(w: NDArray[Any], config: WeightConfig) -> QuantizedMatrix:
    """The nearest codes on the grids that just hold the weights of each block.

    Args:
        w: real weights ``[K, N]`` of any float type and strides; read in parts.
        config: what the codes are; its method is not looked at.

    Raises:
        ValueError: a weight is NaN or infinite, or too large for the scale format.
    """
    grid = grid_of_extremes(*extremes(w, config.block_size), config)
    return QuantizedMatrix(config, encode(w, grid, config), *grid)
