"""Tiles cover a tensor exactly once, in the order of its bytes, in whole blocks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucid_fx.quantization.block import Packing, QuantStore, QuantValue
from lucid_fx.quantization.block import tiles as tiles_module
from lucid_fx.quantization.block.tiles import release, tiles

CASES = [
    ((97,), 0, (5,)),
    ((1, 41), 0, (1, 3)),
    ((9, 10), 0, (4, 3)),
    ((9, 10), 1, (4, 3)),
    ((1, 1, 50), 2, (1, 1, 7)),
    ((3, 5, 7), 1, None),
    ((3, 5, 7), 2, (2, 2, 2)),
]


@pytest.mark.parametrize(("shape", "dim", "block"), CASES)
@pytest.mark.parametrize("elements", [1, 8, 40])
def test_tiles(
    shape: tuple[int, ...],
    dim: int,
    block: tuple[int, ...] | None,
    elements: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiles_module, "TILE_ELEMENTS", elements)
    packing = Packing.of(QuantValue.Q4S, QuantStore.PackedU32(dim), shape)
    seen, end = np.zeros(shape, int), 0
    blocks = [1] * len(shape) if block is None else block
    grid = [-(-size // extent) for size, extent in zip(shape, blocks, strict=True)]
    touched = np.zeros(grid, int)
    for tile in tiles(packing, block):
        seen[tile.index] += 1
        touched[tile.grid] += 1
        assert (tile.data.start, tile.data.stop) == (end, end + tile.packing.nbytes)
        assert seen[tile.index].shape == tile.packing.shape
        assert tile.block == (tile.packing.shape if block is None else block)
        end = tile.data.stop
    assert (seen == 1).all()
    assert end == packing.nbytes
    if block is not None:
        assert (touched == 1).all()
    if elements == 1 and max(shape) == shape[0] > 8:
        assert len(list(tiles(packing, block))) > 1


def test_nothing_to_cut() -> None:
    packing = Packing.of(QuantValue.Q8S, QuantStore.Native, (0, 4))
    assert list(tiles(packing)) == []
    assert len(list(tiles(Packing.of(QuantValue.Q8S, QuantStore.Native, (1, 1))))) == 1


def resident(path: Path) -> int:
    """Kilobytes of a file that are mapped into this process and in memory."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


VIEWS: list[Any] = [
    lambda x: x,
    lambda x: x.reshape(1, 64, 4, 1024),
    lambda x: x[3:],
    lambda x: x[::-1, ::-2],
    lambda x: x.T,
]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("offset", [0, 12, 8192])
def test_pages_of_a_mapped_file_are_given_back(
    view: Any, offset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles_module, "TILE_ELEMENTS", 16 * 1024)
    path = tmp_path / "mapped"
    wanted = np.random.default_rng(0).standard_normal((64, 4096)).astype(np.float32)
    path.write_bytes(bytes(offset) + wanted.tobytes())
    mapped = np.memmap(path, np.float32, "r", offset, wanted.shape)
    x = view(mapped)
    np.testing.assert_array_equal(x, view(wanted))
    assert resident(path) >= 512
    for tile in tiles(Packing.of(QuantValue.Q8S, QuantStore.Native, x.shape)):
        np.testing.assert_array_equal(x[tile.index], view(wanted)[tile.index])
        release(x)
    assert resident(path) == 0


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_what_was_changed_in_a_mapped_file_stays(mode: Any, tmp_path: Path) -> None:
    np.zeros((64, 1024), np.float32).tofile(tmp_path / "mapped")
    x = np.memmap(tmp_path / "mapped", np.float32, mode, shape=(64, 1024))
    x[...] = 1
    release(x)
    release(np.ones((64, 1024), np.float32))
    assert (x == 1).all()
