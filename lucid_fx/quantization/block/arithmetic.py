"""Quantizing and dequantizing tensors with scales of blocks: `quantize`, `dequantize`.

Source: the block-scaled specification, section 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.block import engines
from lucid_fx.quantization.block.calibration import (
    Calibration,
    QParams,
    check_finite,
    check_quantizable,
    compute_q_params,
    compute_range,
    real_tensor,
    tile_of,
)
from lucid_fx.quantization.block.packing import Packing, check_length, unpack
from lucid_fx.quantization.block.rounding import Rounding, make_encoder
from lucid_fx.quantization.block.scales import SMALLEST_SCALE, scale_to_dtype
from lucid_fx.quantization.block.scheme import QuantScheme, params_shape
from lucid_fx.quantization.block.tiles import release, tiles
from lucid_fx.quantization.block.values import QuantMode, StoreKind

Scales = QParams[NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A quantized tensor in memory.

    Attributes:
        data: packed codes, one axis of uint8 (see `Packing`); may be memory-mapped.
        qparams: scales as they are stored: rounded up to their dtypes, positive, float32, of shape
            ``params_shape(shape, scheme)``.
        scheme: how it is quantized.
        shape: of the real tensor.

    Raises:
        ValueError: ``data`` or the scales do not fit the scheme and the shape.
    """

    data: NDArray[np.uint8]
    qparams: Scales
    scheme: QuantScheme
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        check_length(self.data, self.packing)
        object.__setattr__(self, "qparams", fit_scales(self.qparams, self.scheme, self.shape))

    @property
    def packing(self) -> Packing:
        """Where the codes lie in `data`."""
        return Packing.of(self.scheme.value, self.scheme.store, self.shape)

    def codes(self) -> NDArray[Any]:
        """Codes in row-major order: int8 for integers, uint8 for floats and table indices."""
        found = unpack(self.data, self.shape, self.scheme.value, self.scheme.store)
        if self.scheme.mode is QuantMode.Lookup:
            return self.scheme.value.to_fields(found)
        return found

    def effective_scales(self) -> NDArray[np.float32]:
        """The real value of one code step of every block: the product of both levels."""
        if self.qparams.global_scale is None:
            return self.qparams.scales
        return np.asarray(self.qparams.global_scale * self.qparams.scales, np.float32)


def quantize(
    x: ArrayLike,
    scheme: QuantScheme,
    qparams: QParams[Any] | None = None,
    *,
    calibration: Calibration = Calibration.MinMax,
    rounding: Rounding | str = Rounding.half_away,
    table: ArrayLike | None = None,
    out: NDArray[np.uint8] | None = None,
    threads: int | None = None,
) -> QuantizedTensor:
    """Quantize a tensor (section 9).

    The code is ``clamp(round(x / scale))`` in float32, the scale being that of the element's block,
    rounded up to its dtype first. A scale of zero becomes the smallest one of its dtype. Float
    codes are cast, not rounded to integers first. Large tensors are read and written in tiles.

    Args:
        x: real values of any float type; may be memory-mapped.
        scheme: how to quantize.
        qparams: scales, real values of one code step; None computes them from x.
        calibration: how the range is found when they are computed.
        rounding: of integer codes halfway between two: ``half_away`` from zero, or ``half_even`` as
            ONNX QuantizeLinear.
        table: entries for Lookup, ``float32[2**bits]`` in code steps; the nearest one is taken.
        out: where to write the packed codes, ``uint8[Packing.of(...).nbytes]``, for example a
            memory-mapped file; allocated by default.
        threads: of the native library; all cores by default. The result does not depend on it.

    Returns:
        The quantized tensor, with the stored scales.

    Raises:
        ValueError: elements or scales that are not finite, negative scales, scales that do not fit
            the shape, a scheme that cannot be computed, a missing table, ``out`` of another length.
    """
    array = real_tensor(x)
    check_quantizable(scheme)
    entries = check_table(scheme, table)
    encoder = make_encoder(scheme.value, Rounding(rounding), scheme.mode, entries)
    if qparams is None:
        qparams = _calibrate(scheme, array, calibration, entries, threads)
    qparams = store_scales(qparams, scheme, array.shape)
    packing = Packing.of(scheme.value, scheme.store, array.shape)
    data = np.empty(packing.nbytes, np.uint8) if out is None else out
    tensor = QuantizedTensor(data, qparams, scheme, array.shape)
    native = encoder.native() is not None
    engine = engines.choose(array.size, threads) if native else engines.Definition()
    scales, block = _grid(tensor)
    real = array.reshape(packing.shape)
    for tile in tiles(packing, block):
        part = tile_of(real, tile.index)
        steps = np.ascontiguousarray(scales[tile.grid])
        finite = engine.quantize(part, steps, tile.block, tile.packing, encoder, data[tile.data])
        check_finite(finite)
        release(real)
    return tensor


def quantize_dynamic(x: ArrayLike, scheme: QuantScheme) -> QuantizedTensor:
    """Quantize with the range of the tensor itself (MinMax)."""
    return quantize(x, scheme, calibration=Calibration.MinMax)


def dequantize(
    tensor: QuantizedTensor,
    *,
    table: ArrayLike | None = None,
    out: NDArray[np.float32] | None = None,
    threads: int | None = None,
) -> NDArray[np.float32]:
    """The real values of a quantized tensor: scale times code, in float32 (section 9).

    Args:
        tensor: quantized.
        table: entries for Lookup, ``float32[2**bits]`` in code steps.
        out: where to write, float32 of the tensor's shape; allocated by default.
        threads: of the native library; all cores by default. The result does not depend on it.

    Returns:
        float32 of the tensor's shape.

    Raises:
        ValueError: a missing table, or ``out`` of another shape or type.
    """
    entries = check_table(tensor.scheme, table)
    if entries is None:
        entries = tensor.scheme.value.table()
    if out is None:
        out = np.empty(tensor.shape, np.float32)
    if out.shape != tensor.shape or out.dtype != np.float32:
        raise ValueError(
            f"out is {out.dtype}{list(out.shape)}, but the result is float32{list(tensor.shape)}"
        )
    packing = tensor.packing
    engine = engines.choose(packing.size, threads)
    scales, block = _grid(tensor)
    whole = out.reshape(packing.shape)
    for tile in tiles(packing, block):
        place = whole[tile.index]
        part = place if place.flags.carray else np.empty(place.shape, np.float32)
        steps = np.ascontiguousarray(scales[tile.grid])
        data = tensor.data[tile.data]
        engine.dequantize(data, steps, tile.block, tile.packing, entries, part)
        if part is not place:
            place[...] = part
    return out


def lookup_dequantize(
    fields: ArrayLike, bits: int, table: ArrayLike, scale: ArrayLike
) -> NDArray[np.float32]:
    """``table[field] * scale`` for indices that are not packed.

    Args:
        fields: unsigned indices of ``bits`` bits, any shape.
        bits: 2, 4 or 8.
        table: ``float32[2**bits]``, in code steps.
        scale: real value of one code step; broadcasts with ``fields``.
    """
    index, entries = np.asarray(fields, np.int64), np.asarray(table, np.float32)
    if entries.shape != (2**bits,):
        raise ValueError(f"table has the shape {list(entries.shape)}: give {2**bits} entries")
    if index.size and not 0 <= index.min() <= index.max() < len(entries):
        raise ValueError(f"fields holds an index outside 0 to {len(entries) - 1}")
    return np.asarray(entries[index] * np.asarray(scale, np.float32), np.float32)


def store_scales(qparams: QParams[Any], scheme: QuantScheme, shape: Sequence[int]) -> Scales:
    """The scales that are stored: rounded up to their dtypes, and zero replaced.

    Raises:
        ValueError: scales that are negative, not finite or not of the shape's number, or a
            missing or superfluous tensor scale.
    """
    fitted = fit_scales(qparams, scheme, shape)
    for name, values in (("scales", fitted.scales), ("global_scale", fitted.global_scale)):
        if values is not None and not np.isfinite(values).all():
            raise ValueError(f"{name} holds NaN or infinity: a scale is a finite real value")
    positive = np.where(fitted.scales == 0, SMALLEST_SCALE, fitted.scales)
    rounded = scale_to_dtype(positive, scheme.scale_dtype())
    if fitted.global_scale is None:
        return QParams(rounded)
    level = np.where(fitted.global_scale == 0, SMALLEST_SCALE, fitted.global_scale)
    return QParams(rounded, scale_to_dtype(level, scheme.tensor_scale() or scheme.scale_dtype()))


def fit_scales(qparams: QParams[Any], scheme: QuantScheme, shape: Sequence[int]) -> Scales:
    """Scales as float32 of the shape that the scheme gives them; checks their number."""
    wanted = params_shape(shape, scheme)
    scales = np.asarray(qparams.scales, np.float32)
    if scales.size != int(np.prod(wanted)):
        raise ValueError(
            f"scales holds {scales.size} scales, but the shape {list(shape)} has"
            f" {int(np.prod(wanted))} under this scheme"
        )
    if scheme.num_levels() == 2 and qparams.global_scale is None:
        raise ValueError("global_scale is missing: a two-level scheme requires a per-tensor scale")
    if scheme.num_levels() == 1 and qparams.global_scale is not None:
        raise ValueError(
            "global_scale is given, but a one-level scheme does not take a per-tensor scale"
            " besides its own"
        )
    if qparams.global_scale is None:
        return QParams(scales.reshape(wanted))
    return QParams(scales.reshape(wanted), np.asarray(qparams.global_scale, np.float32).reshape(()))


def check_table(scheme: QuantScheme, table: ArrayLike | None) -> NDArray[np.float32] | None:
    """The table of a Lookup scheme as float32; None for the other mode.

    Raises:
        ValueError: it is missing, superfluous or of another length, or the scheme cannot have one.
    """
    if scheme.mode is not QuantMode.Lookup:
        if table is not None:
            raise ValueError("table is given, but only schemes with the mode Lookup have one")
        return None
    if scheme.value.is_float or scheme.store.kind is not StoreKind.PackedU32:
        raise ValueError(
            f"mode Lookup needs integer codes in words, not {scheme.value.name} in"
            f" {scheme.store.kind.value}: use the store PackedU32"
        )
    entries = None if table is None else np.ascontiguousarray(table, np.float32)
    needed = 2**scheme.value.size_bits
    if entries is None or entries.shape != (needed,) or not np.isfinite(entries).all():
        raise ValueError(f"table is missing or not {needed} finite entries, which Lookup needs")
    return entries


def _calibrate(
    scheme: QuantScheme,
    x: NDArray[Any],
    calibration: Calibration,
    table: NDArray[np.float32] | None,
    threads: int | None,
) -> Scales:
    low, high = compute_range(scheme, x, calibration, threads=threads)
    return compute_q_params(scheme, low, high, table=table)


def _grid(tensor: QuantizedTensor) -> tuple[NDArray[np.float32], tuple[int, ...] | None]:
    """Effective scales over the grid of blocks, and the extents of a block if there are any."""
    rank = len(tensor.packing.shape)
    block = tensor.scheme.block_size()
    scales = tensor.effective_scales()
    if block is None:
        return scales.reshape((1,) * rank), None
    return scales.reshape(block.num_blocks(tensor.packing.shape)), block.to_dim_vec(rank)
