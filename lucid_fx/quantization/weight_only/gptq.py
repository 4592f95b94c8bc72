"""GPTQ: rounding row by row, each error made up for by the rows that are still free.

Source: E. Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", ICLR 2023. With H = X^T X of the inputs of a layer and U the upper triangular factor
of its inverse (H^-1 = U^T U), rounding row k of W by an error e costs least when every later row j
moves by -e U[k, j] / U[k, k].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.quantization.weight_only.config import WeightConfig
from lucid_fx.quantization.weight_only.grids import (
    Grid,
    encode_rows,
    extremes,
    grid_of_extremes,
)
from lucid_fx.quantization.weight_only.hqq import DEFAULT, refine_grid
from lucid_fx.quantization.weight_only.matrix import QuantizedMatrix
from lucid_fx.quantization.weight_only.tiles import Floats, for_columns, in_blocks

DAMPING = 0.01
"""Share of the mean diagonal that is added to the diagonal of H before it is inverted."""

MOST_DAMPING = 1.0


def solve(
    w: NDArray[Any], gram: NDArray[np.float64], config: WeightConfig, damping: float = DAMPING
) -> tuple[QuantizedMatrix, list[str]]:
    """Codes that keep the outputs of a layer, rather than its weights.

    The grid of a block is chosen when its first row is reached, from the rows as they are by then.
    Rows whose input was always zero are rounded to nearest.

    Args:
        w: real weights ``[K, N]``.
        gram: X^T X of the layer's inputs, float64 ``[K, K]``.
        config: what the codes are; its method is not looked at.
        damping: added to the diagonal, as a share of its mean; raised tenfold, up to 1, until the
            matrix can be inverted.

    Returns:
        The matrix, and what was done beyond the usual, in words.

    Raises:
        ValueError: a shape that does not fit, or values that are not finite.
    """
    if gram.shape != (len(w), len(w)):
        raise ValueError(f"gram has shape {gram.shape}, expected {(len(w), len(w))}")
    whole = grid_of_extremes(*extremes(w, config.block_size), config)
    factor, notes = _inverse_factor(gram, damping)
    matrix = QuantizedMatrix(config, np.empty(w.shape, np.uint8), *whole)

    def work(columns: slice, values: Floats) -> None:
        _round_columns(values, factor, matrix, columns)

    for_columns(w, work, config.block_size)
    return matrix, notes


def _inverse_factor(gram: NDArray[np.float64], damping: float) -> tuple[Floats, list[str]]:
    """The upper triangular U with H^-1 = U^T U, H damped; and notes."""
    h = np.array(gram, np.float64)
    if not np.isfinite(h).all():
        raise ValueError("gram holds NaN or infinities")
    diagonal = np.einsum("kk->k", h)  # a view
    mean = diagonal.mean()
    if not mean > 0:
        return np.eye(len(h), dtype=np.float32), ["its inputs were always zero: rounded to nearest"]
    dead = diagonal <= 0
    notes = [f"{dead.sum()} inputs were always zero"] if dead.any() else []
    diagonal[dead] = mean
    wanted = damping
    diagonal += damping * mean
    while True:
        try:
            # Reversing rows and columns turns the lower factor of H into an upper one.
            lower = np.linalg.cholesky(h[::-1, ::-1])
            break
        except np.linalg.LinAlgError:
            raised = 10 * damping
            if raised > MOST_DAMPING:
                raise ValueError("gram is not the product of a matrix with itself") from None
            diagonal += (raised - damping) * mean
            damping = raised
    if damping != wanted:
        notes.append(f"damping was raised from {wanted:g} to {damping:g}")
    return np.triu(np.linalg.inv(lower)[::-1, ::-1]).astype(np.float32), notes


def _round_columns(w: Floats, u: Floats, matrix: QuantizedMatrix, columns: slice) -> None:
    """Round some columns into ``matrix``; ``w`` is used up."""
    config, block = matrix.config, matrix.config.block_size
    for index, start in enumerate(range(0, len(w), block)):
        rows = slice(start, min(start + block, len(w)))
        inside, errors = w[rows], np.empty_like(w[rows])
        grid = _grid(inside, config, matrix.global_scale)
        steps = grid.steps[0]
        zeros = config.middle if grid.zeros is None else grid.zeros[0].astype(np.float32)
        for row in range(len(inside)):
            at = start + row
            codes = encode_rows(inside[row], steps, zeros, config)
            matrix.codes[at, columns] = codes
            error = (inside[row] - (codes.astype(np.float32) - zeros) * steps) / u[at, at]
            inside[row + 1 :] -= np.outer(u[at, at + 1 : rows.stop], error)
            errors[row] = error
        w[rows.stop :] -= u[rows, rows.stop :].T @ errors
        matrix.scales[index, columns] = grid.scales[0]
        if matrix.zeros is not None and grid.zeros is not None:
            matrix.zeros[index, columns] = grid.zeros[0]


def _grid(rows: Floats, config: WeightConfig, global_scale: float) -> Grid:
    """The refined grid of one block of rows."""
    grid = grid_of_extremes(*extremes(rows, config.block_size), config, global_scale)
    return refine_grid(in_blocks(rows, config.block_size), grid, config, DEFAULT)
