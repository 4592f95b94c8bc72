"""Quantized tensors in ONNX models and safetensors files.

Both hold bytes and a text that describes them (`describe`), so that a reader who does not know the
scheme still sees the shape, and one who does gets the tensor back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.quantization.block.arithmetic import QuantizedTensor
from lucid_fx.quantization.block.layout import spread
from lucid_fx.quantization.block.scheme import QuantScheme
from lucid_fx.quantization.block.storage import QuantizedBytes
from lucid_fx.quantization.block.values import QuantMode

FORMAT_VERSION = 1
"""Of the description; a reader refuses others."""

METADATA_KEY = "lucid_fx.block"
"""Key of the description in the metadata of an ONNX tensor, prefix of those in safetensors."""


def describe(quantized: QuantizedBytes) -> dict[str, Any]:
    """Everything besides the bytes, as JSON values: format version, scheme, shape."""
    return {
        "version": FORMAT_VERSION,
        "scheme": quantized.scheme.to_json(),
        "shape": list(quantized.shape),
    }


def assemble(fields: Any, data: NDArray[np.uint8], where: str) -> QuantizedBytes:
    """The tensor that `describe` described.

    Args:
        fields: the description.
        data: the bytes.
        where: what to name in errors.

    Raises:
        ValueError: another version, a field missing, or bytes that do not fit.
    """
    try:
        if fields["version"] != FORMAT_VERSION:
            raise ValueError(
                f"version {fields['version']} of the format; this lucid_fx reads {FORMAT_VERSION}"
            )
        return QuantizedBytes(data, QuantScheme.from_json(fields["scheme"]), tuple(fields["shape"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{where} is not a quantized tensor: {error!r} is missing") from error
    except ValueError as error:
        raise ValueError(f"{where} cannot be read: {error}") from error


def to_onnx(quantized: QuantizedBytes, name: str) -> ir.Tensor[Any]:
    """An ONNX tensor of uint8, with the description in its metadata.

    Args:
        quantized: the tensor.
        name: of the ONNX tensor; to be registered as an initializer under it.
    """
    tensor = ir.Tensor(quantized.bytes, name=name)
    tensor.metadata_props[METADATA_KEY] = json.dumps(describe(quantized))
    return tensor


def from_onnx(tensor: Any) -> QuantizedBytes:
    """Read what `to_onnx` gave, from the initializer of a model or the tensor itself.

    Args:
        tensor: an ``onnx_ir`` tensor, or a value whose constant it is.

    Raises:
        ValueError: it was not written by `to_onnx`, or its bytes do not fit.
    """
    tensor = getattr(tensor, "const_value", tensor)
    text = tensor.metadata_props.get(METADATA_KEY)
    where = f"the initializer {tensor.name!r}"
    if text is None:
        raise ValueError(f"{where} is not a quantized tensor: it lacks metadata {METADATA_KEY!r}")
    return assemble(_parse(text, where), np.ascontiguousarray(tensor.numpy()), where)


def to_safetensors(
    tensors: Mapping[str, QuantizedBytes],
) -> tuple[dict[str, NDArray[np.uint8]], dict[str, str]]:
    """Arrays and metadata, as ``safetensors.numpy.save_file`` takes them.

    Args:
        tensors: name → tensor.

    Returns:
        name → uint8 bytes, and one entry of metadata for each.
    """
    arrays = {name: each.bytes for name, each in tensors.items()}
    texts = {f"{METADATA_KEY}:{name}": json.dumps(describe(t)) for name, t in tensors.items()}
    return arrays, texts


def from_safetensors(
    arrays: Mapping[str, NDArray[np.uint8]], metadata: Mapping[str, str] | None
) -> dict[str, QuantizedBytes]:
    """Read what `to_safetensors` gave; arrays without an entry in the metadata are left out.

    Args:
        arrays: name → array, as ``safetensors.numpy.load_file`` gives them.
        metadata: of the file.

    Raises:
        ValueError: an entry without an array, or bytes that do not fit.
    """
    found = {}
    for key, text in (metadata or {}).items():
        prefix, _, name = key.partition(":")
        if prefix != METADATA_KEY:
            continue
        where = f"the tensor {name!r}"
        if name not in arrays:
            raise ValueError(f"{where} is described in the metadata, but the file does not hold it")
        found[name] = assemble(_parse(text, where), np.ascontiguousarray(arrays[name]), where)
    return found


class DequantizeLinearForm(NamedTuple):
    """The operands of an ONNX DequantizeLinear that gives the real values of a tensor, exactly.

    Attributes:
        codes: INT8, or INT4 where codes have 4 bits or fewer, of the tensor's shape.
        scale: float32, the real value of a code step: one, or one for each run of ``block_size``.
        attributes: ``axis`` and ``block_size`` of the node; empty with one scale.
    """

    codes: ir.Tensor[Any]
    scale: ir.Tensor[Any]
    attributes: dict[str, int]


def to_dequantize_linear(tensor: QuantizedTensor, name: str) -> DequantizeLinearForm:
    """A tensor as standard ONNX (operator set 21), which any runtime dequantizes to the same bits.

    Blocks run along one axis there: the scales of larger blocks are repeated along the others.

    Args:
        tensor: integer codes, not indices of a table.
        name: of the ONNX tensors: ``<name>`` and ``<name>_scale``.

    Raises:
        ValueError: ONNX has no exact form for the scheme.
    """
    scheme = tensor.scheme
    if scheme.value.is_float or scheme.mode is QuantMode.Lookup:
        raise ValueError(
            f"{scheme.value.name} in mode {scheme.mode.value} has no exact DequantizeLinear form:"
            " use to_onnx, or integer codes"
        )
    dtype = np.dtype(np.int8 if scheme.value.size_bits == 8 else ml_dtypes.int4)
    codes = ir.Tensor(tensor.codes().astype(dtype), name=name)
    scale, block = tensor.effective_scales(), scheme.block_size()
    if block is None:
        return DequantizeLinearForm(codes, ir.Tensor(scale.reshape(()), name=f"{name}_scale"), {})
    extents = block.to_dim_vec(len(tensor.shape))
    if not extents:
        return DequantizeLinearForm(codes, ir.Tensor(scale, name=f"{name}_scale"), {})
    axis = max(range(len(extents)), key=lambda a: (extents[a], a))
    others = [1 if a == axis else extent for a, extent in enumerate(extents)]
    shape = [scale.shape[a] if a == axis else size for a, size in enumerate(tensor.shape)]
    repeated = np.ascontiguousarray(spread(scale, others, shape))
    attributes = {"axis": axis, "block_size": extents[axis]}
    return DequantizeLinearForm(codes, ir.Tensor(repeated, name=f"{name}_scale"), attributes)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} cannot be read: its metadata is no JSON ({error})") from error
