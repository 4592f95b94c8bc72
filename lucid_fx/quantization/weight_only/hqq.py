"""Half-quadratic refinement of scales and zero points, without data.

Source: H. Badri and A. Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023.
The error is measured with |x|**p, p < 1, which forgives the few large weights. It is split into an
auxiliary residual, whose optimum is a shrinkage, and a quadratic problem for the grid, solved by
least squares. Here the scale is refined as well as the zero point, zero points stay whole numbers
and scales stay numbers of their format, and of all grids on the way each block keeps the one with
the least squared error: on language models that gave a lower perplexity than the error of power p.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lucid_fx.quantization.weight_only.config import WeightConfig
from lucid_fx.quantization.weight_only.grids import (
    Grid,
    encode,
    extremes,
    grid_of_extremes,
    to_scales,
)
from lucid_fx.quantization.weight_only.matrix import QuantizedMatrix
from lucid_fx.quantization.weight_only.tiles import Floats, for_columns, in_blocks


class HqqSettings(NamedTuple):
    """How a grid is refined.

    ``starts``: shares of the range of a block that the first grids cover. ``rounds``: refinements
    of each. ``p``: exponent of the residual's shrinkage. ``beta``: its strength, in code steps, and
    ``growth`` its factor from round to round. ``keep``: exponent of the error by which the best
    grid of a block is chosen.
    """

    starts: tuple[float, ...] = (1.0, 0.92, 0.84, 0.76)
    rounds: int = 6
    p: float = 0.7
    beta: float = 10.0
    growth: float = 1.2


DEFAULT = HqqSettings()


def refine(
    w: NDArray[Any], config: WeightConfig, settings: HqqSettings = DEFAULT
) -> QuantizedMatrix:
    """Codes on refined grids.

    Args:
        w: real weights ``[K, N]`` of any float type and strides; read in parts.
        config: what the codes are; its method is not looked at.
        settings: how grids are refined.

    Raises:
        ValueError: a weight is NaN or infinite, or too large for the scale format.
    """
    grid = grid_of_extremes(*extremes(w, config.block_size), config)

    def work(columns: slice, values: Floats) -> None:
        zeros = None if grid.zeros is None else grid.zeros[:, columns]
        part = Grid(grid.scales[:, columns], zeros, grid.global_scale)
        best = refine_grid(in_blocks(values, config.block_size), part, config, settings)
        grid.scales[:, columns] = best.scales
        if zeros is not None and best.zeros is not None:
            zeros[...] = best.zeros

    for_columns(w, work)
    return QuantizedMatrix(config, encode(w, grid, config), *grid)


def refine_grid(x: Floats, grid: Grid, config: WeightConfig, settings: HqqSettings) -> Grid:
    """The best grid found for each block of ``x [blocks, block, N]``, from one to start with."""
    best, least = grid, _error(x, grid, config)
    for share in settings.starts:
        trial = _covering(grid, share, config)
        beta = settings.beta
        for _ in range(settings.rounds):
            codes = _codes(x, trial, config)
            trial = _fit(x, codes, trial, config, settings.p, beta)
            error = _error(x, trial, config)
            better = error < least
            least = np.where(better, error, least)
            best = _choose(better, trial, best)
            beta *= settings.growth
    return best


def _covering(grid: Grid, share: float, config: WeightConfig) -> Grid:
    """The grid shrunk around zero to a share of its range."""
    scales = to_scales(grid.steps * np.float32(share), config, grid.global_scale, up=False)
    return grid._replace(scales=scales)


def _codes(x: Floats, grid: Grid, config: WeightConfig) -> Floats:
    """Codes relative to zero, as float32."""
    zero = np.float32(config.middle) if grid.zeros is None else grid.zeros[:, None].astype("f4")
    codes = np.rint(x / grid.steps[:, None])
    return np.asarray(np.clip(codes, config.low - zero, config.highest - zero, out=codes))


def _error(x: Floats, grid: Grid, config: WeightConfig) -> Floats:
    residual = _codes(x, grid, config)
    residual *= grid.steps[:, None]
    residual -= x
    return np.asarray(np.einsum("bkn,bkn->bn", residual, residual), np.float32)


def _fit(
    x: Floats, codes: Floats, grid: Grid, config: WeightConfig, p: float, beta: float
) -> Grid:  # fmt: skip
    """The grid whose codes come nearest, by least squares, to the weights without the residual."""
    steps = grid.steps[:, None]
    residual = x / steps - codes
    size = np.abs(residual)
    shrunk = np.maximum(size - np.maximum(size, 1e-6) ** np.float32(p - 1) / np.float32(beta), 0)
    target = codes + residual - np.copysign(shrunk, residual)  # in steps of the old grid
    if grid.zeros is None:
        offset = np.float32(0)
    else:
        mean_codes, mean_target = codes.mean(axis=1), target.mean(axis=1)
        cross = (codes * target).mean(axis=1) - mean_codes * mean_target
        spread = (codes * codes).mean(axis=1) - mean_codes * mean_codes
        slope = np.where(spread > 0, cross / np.where(spread > 0, spread, 1), 1)
        shift = mean_codes - mean_target / np.where(slope > 0, slope, 1)
        zeros = np.clip(np.rint(grid.zeros + shift), 0, config.highest)
        offset = (zeros - grid.zeros)[:, None].astype(np.float32)
        grid = grid._replace(zeros=zeros.astype(np.uint8))
    moved = codes - offset
    squares = np.einsum("bkn,bkn->bn", moved, moved)
    ratio = np.einsum("bkn,bkn->bn", moved, target) / np.where(squares > 0, squares, 1)
    ratio = np.where((squares > 0) & (ratio > 0), ratio, 1)
    scales = to_scales(steps[:, 0] * ratio, config, grid.global_scale, up=False)
    return grid._replace(scales=scales)


def _choose(better: NDArray[np.bool_], new: Grid, old: Grid) -> Grid:
    scales = np.where(better, new.scales, old.scales)
    zeros = None
    if old.zeros is not None and new.zeros is not None:
        zeros = np.where(better, new.zeros, old.zeros)
    return Grid(scales, zeros, old.global_scale)
