"""Quantized tensors in ONNX models and safetensors files.

Both hold bytes and a text that describes them (`describe`), so that a reader who does not know the
scheme still sees the shape, and one who does gets the tensor back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.quantization.block.scheme import QuantScheme
from lucid_fx.quantization.block.storage import QuantizedBytes

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


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where} cannot be read: its metadata is no JSON ({error})") from error
