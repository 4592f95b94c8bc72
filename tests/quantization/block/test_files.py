"""Files of quantized tensors: atomic, mapped, and refused when they are not whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lucid_fx.quantization.block as b
from lucid_fx.quantization.block import QuantizedBytes

X = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)


@pytest.fixture
def stored() -> QuantizedBytes:
    return QuantizedBytes.of(b.quantize(X, b.nvfp4()))


def test_a_file_gives_back_the_tensor_and_maps_it(tmp_path: Path, stored: QuantizedBytes) -> None:
    path = tmp_path / "w.lfx"
    b.save(stored, path)
    found = b.load(path)
    assert found == stored
    assert isinstance(found.bytes, np.memmap)
    assert found.bytes.ctypes.data % 64 == 0
    np.testing.assert_array_equal(b.dequantize(found.to_tensor()), b.dequantize(stored.to_tensor()))
    assert [each.name for each in tmp_path.iterdir()] == ["w.lfx"]


def test_saving_again_replaces_the_whole_file(tmp_path: Path, stored: QuantizedBytes) -> None:
    path = tmp_path / "w.lfx"
    path.write_bytes(b"something longer" * 1000)
    b.save(stored, str(path))
    assert b.load(str(path)) == stored


def test_every_cut_is_refused_and_names_the_file(tmp_path: Path, stored: QuantizedBytes) -> None:
    path = tmp_path / "w.lfx"
    b.save(stored, path)
    whole = path.read_bytes()
    for length in (*range(0, 400, 7), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"w\.lfx.* (is cut short|is not a file)"):
            b.load(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(ValueError, match=r"w\.lfx.* has bytes behind its end"):
        b.load(path)


def test_every_damaged_byte_is_seen(tmp_path: Path, stored: QuantizedBytes) -> None:
    path = tmp_path / "w.lfx"
    b.save(stored, path)
    whole = path.read_bytes()
    begin = len(whole) - stored.bytes.size
    padding = range(whole.index(b"\0", 16), begin)
    for at in (*range(0, begin, 5), *range(begin, len(whole), 11)):
        if at in padding:
            continue
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(ValueError, match=r"w\.lfx"):
            b.load(path)
    assert b.load(path, verify=False).bytes.size == stored.bytes.size


def test_other_files_and_versions_are_refused(
    tmp_path: Path, stored: QuantizedBytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(bytes(100))
    with pytest.raises(ValueError, match=r"other\.bin.* is not a file of a quantized tensor"):
        b.load(other)
    with pytest.raises(OSError, match="absent"):
        b.load(tmp_path / "absent")
    monkeypatch.setattr("lucid_fx.quantization.block.interchange.FORMAT_VERSION", 2)
    b.save(stored, other)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"other\.bin.* version 2 of the format"):
        b.load(other)


def test_a_tensor_without_elements(tmp_path: Path) -> None:
    scheme = b.QuantScheme().per_block([4], b.ScaleDtype.F32)
    empty = QuantizedBytes(np.empty(0, np.uint8), scheme, (0, 4))
    b.save(empty, tmp_path / "empty")
    assert b.load(tmp_path / "empty") == empty
