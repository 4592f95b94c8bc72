"""Tiles cover a tensor exactly once, in the order of its bytes, in whole blocks."""

from __future__ import annotations

import numpy as np
import pytest

from lucid_fx.quantization.block import Packing, QuantStore, QuantValue
from lucid_fx.quantization.block import tiles as tiles_module
from lucid_fx.quantization.block.tiles import tiles

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
