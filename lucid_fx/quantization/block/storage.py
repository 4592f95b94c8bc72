"""A quantized tensor as one run of bytes: `QuantizedBytes` and the lengths of its regions.

Source: the block-scaled specification, section 10. The regions follow each other without padding:
packed codes, scales, and the tensor's scale over block scales if there is one; all little endian.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lucid_fx.quantization.block.arithmetic import QuantizedTensor, fit_scales
from lucid_fx.quantization.block.calibration import QParams
from lucid_fx.quantization.block.packing import (
    Packing,
    as_codes,
    pack_bytes,
    padding_note,
    unpack,
)
from lucid_fx.quantization.block.scales import ScaleDtype, decode_scales, encode_scales, scale_size
from lucid_fx.quantization.block.scheme import (
    QuantScheme,
    global_scale_dtype,
    global_scale_size,
    params_shape,
)
from lucid_fx.quantization.block.values import QuantMode, StoreKind


@dataclass(frozen=True)
class DecodedScales:
    """Scales read from bytes, real values of one code step.

    Attributes:
        block: float32 of blocks, row-major over `params_shape`; one entry without blocks.
        global_scale: the tensor's scale over block scales, None with one level.
    """

    block: NDArray[np.float32]
    global_scale: np.float32 | None = None


@dataclass(frozen=True)
class ParamMetadata:
    """Shape and strides, in elements, of a tensor of parameters."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class QParamTensor:
    """Where parameters are in a buffer.

    Attributes:
        offset_start: bytes from the start of the buffer to the first parameter.
        offset_end: bytes from the last parameter to the *end* of the buffer.
        metadata: shape and strides, in the order in which they are stored.
        dtype: their format.
    """

    offset_start: int
    offset_end: int
    metadata: ParamMetadata
    dtype: ScaleDtype


def quantized_data_len(scheme: QuantScheme, shape: Sequence[int]) -> int:
    """Bytes of a whole tensor: packed codes, scales and the tensor's scale (section 10).

    Raises:
        ValueError: the tensor lacks the packed axis, or the block has more axes than it.
    """
    return Packing.of(scheme.value, scheme.store, shape).nbytes + _params_len(scheme, shape)


def param_tensors(scheme: QuantScheme, shape: Sequence[int]) -> QParams[QParamTensor]:
    """Where the scales of a tensor are in its `QuantizedBytes`."""
    total, grid = quantized_data_len(scheme, shape), _stored_grid(scheme, shape)
    above = global_scale_size(scheme)
    start = total - _params_len(scheme, shape)
    strides = tuple(math.prod(grid[axis + 1 :]) for axis in range(len(grid)))
    scales = QParamTensor(start, above, ParamMetadata(grid, strides), scheme.scale_dtype())
    dtype = global_scale_dtype(scheme)
    if dtype is None:
        return QParams(scales)
    return QParams(scales, QParamTensor(total - above, 0, ParamMetadata((1,), (1,)), dtype))


@dataclass(frozen=True, eq=False)
class QuantizedBytes:
    """A quantized tensor as bytes; compares by value.

    Attributes:
        bytes: one axis of uint8, `quantized_data_len` long; may be memory-mapped.
        scheme: how it is quantized.
        shape: of the real tensor.

    Raises:
        ValueError: the bytes are not as many as the scheme and the shape need.
    """

    bytes: NDArray[np.uint8]
    scheme: QuantScheme
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        data = self.bytes
        if not isinstance(data, np.ndarray):
            data = np.frombuffer(data, np.uint8)
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError(f"bytes is {data.dtype}{list(data.shape)}: give one axis of uint8")
        object.__setattr__(self, "bytes", data)
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        self._check_length()

    @classmethod
    def new(
        cls,
        values: ArrayLike,
        shape: Sequence[int],
        scheme: QuantScheme,
        scales: ArrayLike,
        global_scale: ArrayLike | None = None,
    ) -> QuantizedBytes:
        """Pack codes and encode scales.

        Args:
            values: row-major codes, integers that fit the bits of their format.
            shape: of the tensor.
            scheme: how it is quantized.
            scales: real values of one code step, row-major over `params_shape`; of more, a
                per-tensor scheme keeps the first. Encoded to the nearest value of their dtype.
            global_scale: the tensor's scale over block scales, for two levels only.

        Raises:
            ValueError: numbers of codes or scales that do not fit the shape, codes that do not fit
                their bits, scales and levels that do not match, a tensor scale that is not F32,
                float codes in words.
        """
        shape = tuple(int(size) for size in shape)
        array = as_codes(values, scheme.value, unsigned=_unsigned(scheme)).ravel()
        if array.size != math.prod(shape):
            raise ValueError(
                f"values holds {array.size} codes, which do not fill the shape {list(shape)}"
                f" of {math.prod(shape)} elements"
            )
        levels = np.asarray(scales, np.float32).ravel()
        if scheme.block is None:
            levels = levels[:1]
        _check_stored(scheme)
        params = fit_scales(QParams(levels, global_scale), scheme, shape)
        data = pack_bytes(array.reshape(shape), scheme.value, scheme.store)
        return cls(_join(data, params, scheme, shape), scheme, shape)

    @classmethod
    def of(cls, tensor: QuantizedTensor) -> QuantizedBytes:
        """The bytes of a quantized tensor; a copy."""
        _check_stored(tensor.scheme)
        joined = _join(tensor.data, tensor.qparams, tensor.scheme, tensor.shape)
        return cls(joined, tensor.scheme, tensor.shape)

    def to_tensor(self) -> QuantizedTensor:
        """The quantized tensor; its codes are these bytes, not copied."""
        scales = self.scales()
        params: QParams[NDArray[Any]] = QParams(
            scales.block,
            None if scales.global_scale is None else np.asarray(scales.global_scale),
        )
        return QuantizedTensor(self.bytes[: self._codes_len()], params, self.scheme, self.shape)

    def into_vec_i8(self) -> tuple[NDArray[np.int8], DecodedScales]:
        """Row-major codes, one axis of int8, and the scales."""
        data = self.bytes[: self._codes_len()]
        codes = unpack(data, self.shape, self.scheme.value, self.scheme.store)
        return codes.view(np.int8).ravel(), self.scales()

    def scales(self) -> DecodedScales:
        """The scales alone, row-major over `params_shape`."""
        begin, above = self._codes_len(), global_scale_size(self.scheme)
        end = self.bytes.size - above
        grid = _stored_grid(self.scheme, self.shape)
        block = decode_scales(self.bytes[begin:end].tobytes(), self.scheme.scale_dtype())
        block = _swapped(block.reshape(grid), self.scheme).ravel()
        if not above:
            return DecodedScales(block)
        return DecodedScales(block, decode_scales(self.bytes[end:].tobytes(), ScaleDtype.F32)[0])

    def num_elements(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantizedBytes):
            return NotImplemented
        same = (self.scheme, self.shape) == (other.scheme, other.shape)
        return same and np.array_equal(self.bytes, other.bytes)

    __hash__ = None  # type: ignore[assignment]

    def _codes_len(self) -> int:
        return self.bytes.size - _params_len(self.scheme, self.shape)

    def _check_length(self) -> None:
        packing = Packing.of(self.scheme.value, self.scheme.store, self.shape)
        found = self._codes_len()
        if found < 0:
            raise ValueError(
                f"bytes is shorter ({self.bytes.size} bytes) than the scales that it must hold"
                f" ({_params_len(self.scheme, self.shape)})"
            )
        if found != packing.nbytes:
            raise ValueError(
                f"bytes holds {found} bytes of codes before its scales, but the shape"
                f" {list(self.shape)} takes {packing.nbytes}{padding_note(packing)}"
            )


def _unsigned(scheme: QuantScheme) -> bool:
    return scheme.value.is_float or scheme.mode is QuantMode.Lookup


def _check_stored(scheme: QuantScheme) -> None:
    """Refuse what has no form as bytes (section 10)."""
    if scheme.num_levels() == 2 and scheme.tensor is not ScaleDtype.F32:
        raise ValueError(
            f"the tensor scale of the scheme is {scheme.tensor and scheme.tensor.name}: over block"
            " scales it is stored as f32, so use per_tensor(ScaleDtype.F32)"
        )
    if scheme.value.is_float and scheme.store.kind is StoreKind.PackedU32:
        raise ValueError(
            f"float values ({scheme.value.name}) cannot be packed into words here: PackedU32 is not"
            " supported for them as bytes, use the store Native or PackedNative"
        )


def _params_len(scheme: QuantScheme, shape: Sequence[int]) -> int:
    count = math.prod(params_shape(shape, scheme))
    return count * scale_size(scheme.scale_dtype()) + global_scale_size(scheme)


def _stored_grid(scheme: QuantScheme, shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the scales in the order in which they are stored."""
    return _swapped(np.broadcast_to(np.uint8(0), params_shape(shape, scheme)), scheme).shape


def _swapped(grid: NDArray[Any], scheme: QuantScheme) -> NDArray[Any]:
    """Scales of blocks follow their codes: the packed axis is swapped with the last one."""
    if scheme.block is None or not scheme.store.dim:
        return grid
    return np.swapaxes(grid, -1 - scheme.store.dim, -1)


def _join(
    data: NDArray[np.uint8],
    params: QParams[NDArray[np.float32]],
    scheme: QuantScheme,
    shape: Sequence[int],
) -> NDArray[np.uint8]:
    joined = np.empty(quantized_data_len(scheme, shape), np.uint8)
    joined[: data.size] = data
    tail = encode_scales(_swapped(params.scales, scheme), scheme.scale_dtype())
    if params.global_scale is not None:
        tail += encode_scales(params.global_scale, ScaleDtype.F32)
    joined[data.size :] = np.frombuffer(tail, np.uint8)
    return joined
