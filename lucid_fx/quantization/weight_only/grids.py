"""Grids of blocks: the real value of a code step, and the code of zero.

Where a format of codes reaches one step further below zero than above (Q4F: -8 to 7), the weight of
the largest magnitude goes to the lowest code, whichever its sign: the *scale* carries the sign, and
no code is wasted (docs/decisions/0012-signed-scales.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lucid_fx.native.library import load
from lucid_fx.native.matmul import NativeMatMul
from lucid_fx.quantization.block import ScaleDtype, decode_scales, encode_scales, scale_to_dtype
from lucid_fx.quantization.block.scales import SMALLEST_SCALE
from lucid_fx.quantization.weight_only.config import WeightConfig
from lucid_fx.quantization.weight_only.tiles import Floats, row_tiles


class Grid(NamedTuple):
    """Grids of all blocks of a matrix, or of some of its blocks and columns.

    ``scales``: float32 ``[blocks, N]``, values of the scale format, of either sign. ``zeros``:
    uint8 of the same shape, the stored code of zero; None for the middle one. ``global_scale``:
    factor of all scales.
    """

    scales: Floats
    zeros: NDArray[np.uint8] | None
    global_scale: float = 1.0

    @property
    def steps(self) -> Floats:
        """The real value of a code step, float32 of the shape of ``scales``."""
        return np.float32(self.global_scale) * self.scales


def extremes(w: NDArray[Any], block: int) -> tuple[Floats, Floats]:
    """The least and the greatest real weight of each block: ``[blocks, N]`` of ``w [K, N]``.

    Raises:
        ValueError: a weight is NaN or infinite.
    """
    blocks = -(-w.shape[0] // block)
    least, greatest = np.empty((2, blocks, w.shape[1]), np.float32)
    library = load()
    for rows, values in row_tiles(w, block):
        part = slice(rows.start // block, -(-rows.stop // block))
        if library is not None:
            least[part], greatest[part] = NativeMatMul(library).extremes(values, block)
            continue
        starts = np.arange(0, len(values), block)
        least[part] = np.minimum.reduceat(values, starts, axis=0)
        greatest[part] = np.maximum.reduceat(values, starts, axis=0)
    if not (np.isfinite(least).all() and np.isfinite(greatest).all()):
        raise ValueError("a weight is NaN or infinite")
    return least, greatest


def grid_of_extremes(
    least: Floats, greatest: Floats, config: WeightConfig, global_scale: float | None = None
) -> Grid:
    """The grids that just hold the weights of each block; scales are rounded away from zero.

    A block of zeros gets the smallest scale of the format, and codes of zero.

    Args:
        least, greatest: real values, as `extremes` gives them.
        global_scale: the scale over the matrix where it is known; by default the one that makes
            the largest block scale the largest number of its format, or 1 where there is none.

    Raises:
        ValueError: a weight is too large for the scale format.
    """
    if config.zero_points:
        zero, last = np.float32(0), np.float32(config.highest)
        low: Floats = np.asarray(np.minimum(least, zero), np.float32)
        steps: Floats = np.asarray(np.maximum(greatest, zero) / last - low / last, np.float32)
    else:
        low, steps = least, _signed_steps(least, greatest, config)
    if global_scale is None:
        global_scale = _global_scale(steps, config)
    scales = to_scales(steps, config, global_scale, up=True)
    zeros = None
    if config.zero_points:
        codes = np.rint(-low / (np.float32(global_scale) * scales))
        zeros = np.clip(codes, 0, config.highest).astype(np.uint8)
    return Grid(scales, zeros, global_scale)


def matrix_scale(w: NDArray[Any], config: WeightConfig) -> float:
    """The scale over a whole matrix ``[K, N]`` that `grid_of_extremes` chooses."""
    return grid_of_extremes(*extremes(w, config.block_size), config).global_scale


def to_scales(steps: Floats, config: WeightConfig, global_scale: float, *, up: bool) -> Floats:
    """Stored scales of code steps: numbers of the scale format, never zero.

    Args:
        steps: real values, of either sign.
        global_scale: factor of the stored scales.
        up: round the magnitude up, so that nothing is clipped; else to nearest.

    Raises:
        ValueError: a step is too large for the format.
    """
    sizes = np.maximum(np.abs(steps) / np.float32(global_scale), SMALLEST_SCALE)
    largest, limit = sizes.max(initial=0), config.scale.max_representable
    if largest > limit and config.scale is not ScaleDtype.UE4M3:
        raise ValueError(
            f"a scale would be {largest:g}, and {config.scale.name} ends at {limit:g}: use F32"
        )
    if up:
        rounded = scale_to_dtype(sizes, config.scale)
    else:
        nearest = decode_scales(encode_scales(sizes, config.scale), config.scale)
        smallest = scale_to_dtype(SMALLEST_SCALE, config.scale)
        rounded = np.maximum(nearest.reshape(sizes.shape), smallest)
    return np.copysign(rounded, steps)


def encode(w: NDArray[Any], grid: Grid, config: WeightConfig) -> NDArray[np.uint8]:
    """Stored codes ``clip(rint(w / step) + zero)`` of ``w [K, N]``, ties to even."""
    codes = np.empty(w.shape, np.uint8)
    block, library, steps = config.block_size, load(), grid.steps
    for rows, values in row_tiles(w, block):
        part = slice(rows.start // block, -(-rows.stop // block))
        zeros = None if grid.zeros is None else grid.zeros[part]
        if library is not None:
            codes[rows] = NativeMatMul(library).encode(
                values, steps[part], zeros, low=config.low, block=block, bits=config.bits
            )
            continue
        for index, step in enumerate(steps[part]):
            inside = slice(index * block, (index + 1) * block)
            zero = config.middle if zeros is None else zeros[index].astype(np.float32)
            codes[rows][inside] = encode_rows(values[inside], step, zero, config)
    return codes


def encode_rows(
    values: Floats, steps: Floats, zeros: Floats | int, config: WeightConfig
) -> NDArray[np.uint8]:
    """Stored codes of float32 values, where steps and zeros broadcast against them."""
    with np.errstate(over="ignore"):
        codes = np.rint(values / steps) + zeros
    return np.asarray(np.clip(codes, config.low, config.highest), np.uint8)


def _signed_steps(least: Floats, greatest: Floats, config: WeightConfig) -> Floats:
    """Steps without zero points; negative where the lowest code stands for a positive weight."""
    if not config.value.is_symmetric and config.scale is not ScaleDtype.UE4M3:
        extreme = np.where(greatest > -least, -greatest, -least)
        return np.asarray(extreme / np.float32(config.middle), np.float32)
    low, high = config.value.range
    reach = np.maximum(np.abs(least), np.abs(greatest))
    return np.asarray(reach / np.float32((high - low) / 2), np.float32)


def _global_scale(steps: Floats, config: WeightConfig) -> float:
    if config.scale is not ScaleDtype.UE4M3:
        return 1.0
    largest = np.abs(steps).max(initial=0) / config.scale.max_representable
    return float(np.maximum(np.float32(largest), SMALLEST_SCALE))
