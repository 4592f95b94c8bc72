"""From real values to scales: `compute_range` and `compute_q_params`.

Source: the block-scaled specification, section 8.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.block import engines
from lucid_fx.quantization.block.layout import BlockLayout
from lucid_fx.quantization.block.packing import Packing
from lucid_fx.quantization.block.scales import SMALLEST_SCALE
from lucid_fx.quantization.block.scheme import QuantScheme, params_shape, quantizable
from lucid_fx.quantization.block.tiles import release, tiles
from lucid_fx.quantization.block.values import QuantStore, QuantValue

S = TypeVar("S")
Range = tuple[NDArray[np.float32], NDArray[np.float32]]


class Calibration(enum.Enum):
    """How the range of real values is found (section 8).

    ``MinMax``: the least and the greatest element. ``AbsMean``: plus and minus the mean magnitude,
    which suits ternary codes (Q2S).
    """

    MinMax = "MinMax"
    AbsMean = "AbsMean"


@dataclass(frozen=True, eq=False)
class QParams(Generic[S]):
    """The parameters of a quantized tensor; arrays compare by value.

    Attributes:
        scales: real value of one code step; of blocks relative to ``global_scale`` if there is one.
        global_scale: the tensor's scale over block scales, None with one level.
    """

    scales: S
    global_scale: S | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams):
            return NotImplemented
        if (self.global_scale is None) != (other.global_scale is None):
            return False
        same = np.array_equal(np.asarray(self.scales), np.asarray(other.scales))
        return same and bool(np.all(self.global_scale == other.global_scale))

    __hash__ = None  # type: ignore[assignment]


def compute_range(
    scheme: QuantScheme,
    x: ArrayLike,
    calibration: Calibration,
    *,
    strict: bool = False,
    threads: int | None = None,
) -> Range:
    """The range of real values of a tensor, or of each of its blocks; not widened to hold zero.

    Args:
        scheme: says what the blocks are.
        x: real values; read in tiles, so it may be memory-mapped.
        calibration: how.
        strict: refuse shapes with partial blocks; by default a partial block has the range of the
            elements that it has.
        threads: of the native library; all cores by default. The result does not depend on it.

    Returns:
        Least and greatest real value, float32 of ``params_shape(x.shape, scheme)``.

    Raises:
        ValueError: no elements, values that are not finite, blocks that do not fit the shape,
            or AbsMean with two levels.
    """
    if calibration is Calibration.AbsMean and scheme.num_levels() == 2:
        raise ValueError("calibration AbsMean is not defined for a two-level scheme: use MinMax")
    array = real_tensor(x)
    block = scheme.block_size()
    if block is not None and strict and not BlockLayout(array.shape, block).divides():
        raise ValueError(
            f"the shape {list(array.shape)} must be evenly divisible by block size {list(block)}:"
            " pad the tensor, or leave strict out"
        )
    shape = params_shape(array.shape, scheme)
    extents = None if block is None else block.to_dim_vec(array.ndim) or (1,)
    rows = array.reshape(array.shape or (1,))
    if calibration is Calibration.MinMax:
        low, high = _min_max(rows, extents, engines.choose(rows.size, threads))
    else:
        low, high = _abs_mean(rows, extents)
    return low.reshape(shape), high.reshape(shape)


def compute_q_params(
    scheme: QuantScheme,
    min: ArrayLike,
    max: ArrayLike,
    *,
    table: NDArray[np.float32] | None = None,
) -> QParams[NDArray[np.float32]]:
    """The scales that make the highest code reach the end of a range (section 8).

    With two levels, the tensor's scale makes the largest block scale the largest number of its
    dtype. Scales are not rounded to their dtype here.

    Args:
        scheme: gives the range of codes and the levels.
        min, max: real values, as `compute_range` gives them.
        table: for Lookup, the entries; the largest magnitude takes the place of the highest code.

    Returns:
        float32 scales, of the shape of ``min``, and the tensor's scale of shape ``()`` if any.

    Raises:
        ValueError: the levels of the scheme cannot be computed (see `quantizable`).
    """
    check_quantizable(scheme)
    reach = np.maximum(np.abs(np.asarray(min, np.float32)), np.abs(np.asarray(max, np.float32)))
    low, high = scheme.value.range
    steps = np.float32((high - low) / 2) if table is None else np.abs(table).max()
    scales = np.asarray(reach / steps, np.float32)
    if scheme.num_levels() == 1:
        return QParams(scales)
    largest = np.max(scales) / scheme.scale_dtype().max_representable
    global_scale = np.maximum(np.float32(largest), SMALLEST_SCALE)
    return QParams(np.asarray(scales / global_scale, np.float32), np.asarray(global_scale))


def check_quantizable(scheme: QuantScheme) -> None:
    """Refuse levels that `quantizable` denies."""
    if not quantizable(scheme):
        raise ValueError(
            f"block scales of {scheme.scale_dtype().name} under a tensor scale of"
            f" {scheme.tensor and scheme.tensor.name} cannot be computed: use F16 or UE4M3 for"
            " blocks, whose numbers end at 65504 at most, and F32 for the tensor"
        )


def real_tensor(x: ArrayLike) -> NDArray[Any]:
    """A tensor of real values, of any float type and not copied.

    Raises:
        ValueError: it has no elements, or is not of numbers.
    """
    array = x if isinstance(x, np.ndarray) else np.asarray(x)
    if array.size == 0:
        raise ValueError(f"x has no elements (shape {list(array.shape)}): there is no range")
    if array.dtype.kind in "cOSUMm":
        raise ValueError(f"x is of type {array.dtype}: give real numbers")
    return array


def tile_of(x: NDArray[Any], index: tuple[slice, ...]) -> NDArray[np.float32]:
    """A tile as contiguous, aligned float32, without a copy where it is that already."""
    with np.errstate(over="ignore"):
        return np.require(x[index], np.float32, ("C", "A"))


def check_finite(finite: bool) -> None:
    """Refuse a tensor with NaN or infinite elements."""
    if not finite:
        raise ValueError("x has elements that are NaN or infinite: replace them before quantizing")


def _min_max(x: NDArray[Any], block: tuple[int, ...] | None, engine: engines.Engine) -> Range:
    def extremes(tile: NDArray[np.float32], extents: tuple[int, ...]) -> Range:
        low, high, finite = engine.extremes(tile, extents)
        check_finite(finite)
        return low, high

    return _reduce(x, block, extremes, np.minimum, np.maximum)


def _abs_mean(x: NDArray[Any], block: tuple[int, ...] | None) -> Range:
    def sums(tile: NDArray[np.float32], extents: tuple[int, ...]) -> Range:
        check_finite(bool(np.isfinite(tile).all()))
        total: NDArray[Any] = np.abs(tile).astype(np.float64)
        count: NDArray[Any] = np.ones(1)
        for axis, (extent, size) in enumerate(zip(extents, tile.shape, strict=True)):
            starts = np.arange(0, size, extent)
            total = np.add.reduceat(total, starts, axis=axis)
            count = np.multiply.outer(count, np.minimum(extent, size - starts))
        return total, count[0]

    total, count = _reduce(x, block, sums, np.add, np.add)
    mean = (total / count).astype(np.float32)
    return -mean, mean


def _reduce(
    x: NDArray[Any],
    block: tuple[int, ...] | None,
    of_tile: Callable[[NDArray[np.float32], tuple[int, ...]], Range],
    first: np.ufunc,
    second: np.ufunc,
) -> Range:
    """Two numbers for each block; tiles hold whole blocks, or parts of the one tensor."""
    packing = Packing.of(QuantValue.Q8F, QuantStore.Native, x.shape)
    grid = (1,) * x.ndim
    if block is not None:
        grid = tuple(-(-size // extent) for size, extent in zip(x.shape, block, strict=True))
    found: Range | None = None
    for tile in tiles(packing, block):
        a, b = of_tile(tile_of(x, tile.index), tile.block)
        release(x)
        if block is not None:
            found = found or (np.empty(grid, a.dtype), np.empty(grid, b.dtype))
            found[0][tile.grid], found[1][tile.grid] = a, b
        else:
            found = (a, b) if found is None else (first(found[0], a), second(found[1], b))
    assert found is not None  # x has elements
    return found
