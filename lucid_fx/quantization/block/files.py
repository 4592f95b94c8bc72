"""A quantized tensor in a file of its own: `save`, and `load`, which maps it into memory.

The file: 8 bytes of magic, the length and the CRC-32 of a JSON header (little-endian uint32 each),
the header, zeros up to a multiple of 64 bytes, and the bytes of the tensor.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.quantization.block.interchange import assemble, describe
from lucid_fx.quantization.block.storage import QuantizedBytes

MAGIC = b"LFXBLOCK"
_PREFIX = struct.Struct("<8sII")
_ALIGNMENT = 64
_CHUNK = 1 << 24


def save(quantized: QuantizedBytes, path: str | Path) -> None:
    """Write a tensor so that ``path`` holds either the old file or the whole new one.

    Args:
        quantized: the tensor.
        path: of the file; its folder must exist.
    """
    path = Path(path)
    fields = describe(quantized) | {"crc32": _crc32(quantized.bytes), "bytes": quantized.bytes.size}
    header = json.dumps(fields).encode()
    begin = _begin(len(header))
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        draft = Path(folder) / path.name
        with draft.open("wb") as file:
            file.write(_PREFIX.pack(MAGIC, len(header), zlib.crc32(header)))
            file.write(header)
            file.write(bytes(begin - file.tell()))
            for start in range(0, quantized.bytes.size, _CHUNK):
                file.write(quantized.bytes[start : start + _CHUNK].data)
        os.replace(draft, path)


def load(path: str | Path, *, verify: bool = True) -> QuantizedBytes:
    """Map a tensor that `save` wrote into memory; its bytes are read when they are used.

    Args:
        path: of the file.
        verify: read all bytes once and compare their checksum.

    Raises:
        ValueError: the file is something else, cut short, or damaged.
        OSError: it cannot be read.
    """
    path = Path(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(_PREFIX.size)
        if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
            raise ValueError(f"{str(path)!r} is not a file of a quantized tensor")
        _, length, checksum = _PREFIX.unpack(prefix)
        header = file.read(length)
    if len(header) < length:
        raise ValueError(f"{str(path)!r} is cut short: it ends within its header")
    if zlib.crc32(header) != checksum:
        raise ValueError(f"{str(path)!r} is damaged: its header does not match its checksum")
    fields = json.loads(header)
    begin, count = _begin(length), int(fields["bytes"])
    if size != begin + count:
        what = "is cut short" if size < begin + count else "has bytes behind its end"
        raise ValueError(f"{str(path)!r} {what}: it has {size} bytes, not {begin + count}")
    data = _map(path, begin, count)
    if verify and _crc32(data) != fields["crc32"]:
        raise ValueError(f"{str(path)!r} is damaged: its bytes do not match their checksum")
    return assemble(fields, data, repr(str(path)))


def _map(path: Path, begin: int, count: int) -> NDArray[np.uint8]:
    if count == 0:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", begin, (count,))


def _begin(header: int) -> int:
    return -(-(_PREFIX.size + header) // _ALIGNMENT) * _ALIGNMENT


def _crc32(data: NDArray[Any]) -> int:
    checksum = 0
    for start in range(0, data.size, _CHUNK):
        checksum = zlib.crc32(data[start : start + _CHUNK].tobytes(), checksum)
    return checksum
