"""Quantized tensors in ONNX models and in safetensors containers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import lucid_fx.quantization.block as b
from lucid_fx.quantization.block import (
    QuantizedBytes,
    QuantScheme,
    QuantStore,
    QuantValue,
    ScaleDtype,
)
from lucid_fx.runtime.session import Session

X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
STORED = {
    "fp4": QuantizedBytes.of(b.quantize(X, b.nvfp4())),
    "words": QuantizedBytes.of(b.quantize(X, b.QuantScheme())),
}


def write_safetensors(path: Path, arrays: dict[str, Any], metadata: dict[str, str]) -> None:
    """The container: 8 bytes of header length, a JSON header, the bytes of all tensors."""
    header: dict[str, Any] = {"__metadata__": metadata}
    begin = 0
    for name, array in arrays.items():
        end = begin + array.nbytes
        offsets = {"data_offsets": [begin, end]}
        header[name] = {"dtype": "U8", "shape": list(array.shape)} | offsets
        begin = end
    text = json.dumps(header).encode()
    body = b"".join(array.tobytes() for array in arrays.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__")
    data = np.frombuffer(raw, np.uint8)[8 + length :]
    return {k: data[slice(*v["data_offsets"])] for k, v in header.items()}, metadata


def test_safetensors_give_back_every_tensor(tmp_path: Path) -> None:
    arrays, metadata = b.to_safetensors(STORED)
    arrays["plain"] = np.arange(3, dtype=np.uint8)
    write_safetensors(tmp_path / "w.safetensors", arrays, metadata | {"format": "np"})
    assert b.from_safetensors(*read_safetensors(tmp_path / "w.safetensors")) == STORED
    assert all(isinstance(text, str) for text in metadata.values())


def test_safetensors_that_do_not_fit_are_refused() -> None:
    arrays, metadata = b.to_safetensors(STORED)
    assert b.from_safetensors(arrays, None) == {}
    with pytest.raises(ValueError, match="'fp4' is described in the metadata, but"):
        b.from_safetensors({"words": arrays["words"]}, metadata)
    with pytest.raises(ValueError, match="tensor 'words' cannot be read: bytes holds"):
        b.from_safetensors(arrays | {"words": arrays["words"][:-1]}, metadata)
    key = next(iter(metadata))
    for text, word in (("{", "no JSON"), ("{}", "'version'.* is missing"), ("3", "is not")):
        with pytest.raises(ValueError, match=word):
            b.from_safetensors(arrays, metadata | {key: text})


def test_onnx_models_carry_the_tensor(tmp_path: Path) -> None:
    tensor = b.to_onnx(STORED["fp4"], "w")
    value = ir.Value(name="w", const_value=tensor, type=ir.TensorType(tensor.dtype))
    out = ir.node("Identity", [value])
    out.outputs[0].name = "y"
    graph = ir.Graph(
        [], out.outputs, nodes=[out], initializers=[value], opset_imports={"": 21}, name="g"
    )
    ir.save(ir.Model(graph, ir_version=10), tmp_path / "m.onnx")
    read = ir.load(tmp_path / "m.onnx").graph.initializers["w"]
    assert b.from_onnx(read) == STORED["fp4"]
    assert b.from_onnx(read.const_value) == STORED["fp4"]
    assert read.const_value is not None
    assert read.const_value.dtype == ir.DataType.UINT8


def test_other_onnx_tensors_are_refused() -> None:
    plain = ir.Tensor(np.zeros(4, np.uint8), name="plain")
    with pytest.raises(ValueError, match="'plain' is not a quantized tensor"):
        b.from_onnx(plain)
    tensor = b.to_onnx(STORED["fp4"], "w")
    short = ir.Tensor(STORED["fp4"].bytes[:-1], name="short")
    short.metadata_props.update(tensor.metadata_props)
    with pytest.raises(ValueError, match="'short' cannot be read: bytes holds"):
        b.from_onnx(short)


LEVELS: list[Any] = [
    lambda scheme: scheme.per_tensor(ScaleDtype.BF16),
    lambda scheme: scheme.per_block([16], ScaleDtype.F16),
    lambda scheme: scheme.per_block([8, 1], ScaleDtype.UE8M0),
    lambda scheme: scheme.per_block([4, 16], ScaleDtype.UE4M3).per_tensor(ScaleDtype.F32),
    lambda scheme: scheme.per_block([3, 2], ScaleDtype.F32),
]


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("value", [QuantValue.Q8F, QuantValue.Q4S, QuantValue.Q2S])
def test_onnxruntime_gives_the_same_bits(levels: Any, value: QuantValue) -> None:
    scheme = levels(QuantScheme(value, QuantStore.PackedU32(1)))
    tensor = b.quantize(X, scheme)
    form = b.to_dequantize_linear(tensor, "w")
    operands = [
        ir.Value(name=each.name, const_value=each, type=ir.TensorType(each.dtype))
        for each in (form.codes, form.scale)
    ]
    node = ir.node("DequantizeLinear", operands, form.attributes)
    node.outputs[0].name = "y"
    node.outputs[0].dtype = ir.DataType.FLOAT
    graph = ir.Graph(
        [], node.outputs, nodes=[node], initializers=operands, opset_imports={"": 21}, name="g"
    )
    (real,) = Session(ir.Model(graph, ir_version=10)).run({})
    assert real.tobytes() == b.dequantize(tensor).tobytes()
    assert form.codes.dtype == (ir.DataType.INT8 if value.size_bits == 8 else ir.DataType.INT4)


def test_what_onnx_cannot_say_exactly_is_refused() -> None:
    for scheme in (b.nvfp4(), QuantScheme().with_mode(b.QuantMode.Lookup)):
        table = np.linspace(-1, 1, 256) if scheme.mode is b.QuantMode.Lookup else None
        tensor = b.quantize(X, scheme, table=table)
        with pytest.raises(ValueError, match="no exact DequantizeLinear form"):
            b.to_dequantize_linear(tensor, "w")
