"""Reading a model without its weights, which stay in the file until somebody asks for them.

Weights inside a protobuf are bytes at some place of a file, as external data is. Here the wire
format is read as far as those bytes, and each large one is replaced by a reference to its place, so
that a model of any size is opened in little memory.

Source: the encoding of Protocol Buffers, and the field numbers of ``onnx.proto``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import onnx

LEAST = 1 << 16
"""Bytes of a tensor that is worth a reference."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PARTS = {  # message and field → message that may hold weights
    ("Model", 7): "Graph",
    ("Graph", 1): "Node",
    ("Graph", 5): "Tensor",
    ("Node", 5): "Attribute",
    ("Attribute", 6): "Graph",
    ("Attribute", 11): "Graph",
}
_RAW_DATA = 9
_LONGEST_HEAD = 20
"""Bytes of a field's number and of its size."""

Field = tuple[int, int, int, int, int]
"""Number, wire type, where the field starts, where its value starts, where it ends."""


def can_map(path: Path) -> bool:
    """Whether references into a file are safe: one name, no link, no other one of its bytes."""
    return not path.is_symlink() and path.stat().st_nlink == 1


def read_mapped(path: Path) -> onnx.ModelProto:
    """The model at ``path``, whose large initializers refer to the file itself.

    Raises:
        ValueError: the file is no protobuf.
    """
    with path.open("rb") as file:
        data = _Bytes(file.fileno())
        small = b"".join(_without_weights(data, 0, path.stat().st_size, "Model", path.name))
    proto = onnx.ModelProto()
    proto.ParseFromString(small)
    return proto


class _Bytes:
    """Slices of a file, read one by one: mapping it would bring far more of it into memory."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __getitem__(self, part: slice) -> bytes:
        return os.pread(self._descriptor, part.stop - part.start, part.start)


def _without_weights(
    data: _Bytes, start: int, end: int, message: str, location: str
) -> Iterator[bytes]:
    """The pieces of a message in which large raw data is a reference."""
    kept = start  # where the piece that is copied as it is begins
    for number, wire, first, value, last in _fields(data, start, end):
        if wire != _BYTES:
            continue
        part = _PARTS.get((message, number))
        if part is not None:
            yield data[kept:first]
            inside = b"".join(_without_weights(data, value, last, part, location))
            yield data[first : first + _tag_size(number)] + _varint(len(inside)) + inside
            kept = last
        elif (message, number) == ("Tensor", _RAW_DATA) and last - value >= LEAST:
            yield data[kept:first]
            yield _reference(location, value, last - value)
            kept = last
    yield data[kept:end]


def _fields(data: _Bytes, at: int, end: int) -> Iterator[Field]:
    while at < end:
        head = data[at : min(at + _LONGEST_HEAD, end)]
        key, size_of_key = _read_varint(head, 0, at)
        number, after = (
            _read_varint(head, size_of_key, at) if key & 7 in (_VARINT, _BYTES) else (0, 0)
        )
        value, last = at + size_of_key, at + after
        if key & 7 == _BYTES:
            value, last = last, last + number
        elif key & 7 in (_FIXED64, _FIXED32):
            last = value + (8 if key & 7 == _FIXED64 else 4)
        elif key & 7 != _VARINT:
            raise ValueError(f"byte {at} is no field of a protobuf")
        if last > end:
            raise ValueError(f"the field at byte {at} ends beyond its message")
        yield key >> 3, key & 7, at, value, last
        at = last


def _read_varint(head: bytes, at: int, place: int) -> tuple[int, int]:
    """A number that starts at ``at``, and where it ends."""
    number = 0
    for index, byte in enumerate(head[at : at + 10]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, at + index + 1
    raise ValueError(f"the field at byte {place} has no end")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _tag_size(number: int) -> int:
    return len(_varint(number << 3))


def _reference(location: str, offset: int, length: int) -> bytes:
    """The fields of a tensor whose data lies at a place of a file."""
    tensor = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    places = {"location": location, "offset": str(offset), "length": str(length)}
    for key, value in places.items():
        tensor.external_data.add(key=key, value=value)
    return bytes(tensor.SerializeToString())
