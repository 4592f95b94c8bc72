"""Block sizes and which block an element is in."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lucid_fx.quantization.block import BlockLayout, BlockSize
from lucid_fx.quantization.block.layout import spread


def test_leading_ones_say_nothing() -> None:
    assert BlockSize([1, 1, 4, 1]) == BlockSize([4, 1]) != BlockSize([4])
    assert hash(BlockSize([1, 8])) == hash(BlockSize([8]))
    assert list(BlockSize([1, 1])) == [] == list(BlockSize())
    assert (len(BlockSize([2, 3])), BlockSize([2, 3]).num_elements) == (2, 6)


def test_order_is_length_then_content() -> None:
    sizes = [BlockSize(v) for v in ([], [2], [9], [2, 1], [2, 2], [1, 255], [2, 1, 1])]
    assert sorted(sizes) == sorted(sizes, key=lambda size: (len(size), size.dims))


@pytest.mark.parametrize(
    ("values", "word"), [([0], "extent 0"), ([256], "extent 256"), ([2] * 6, "6 extents")]
)
def test_sizes_out_of_range_are_refused(values: list[int], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        BlockSize(values)
    assert len(BlockSize([1, 1, 2, 2, 2, 2, 2])) == 5


def test_more_axes_than_the_tensor_are_refused() -> None:
    with pytest.raises(ValueError, match="has 2 axes, but the tensor has rank 1"):
        BlockSize([2, 4]).to_dim_vec(1)
    assert BlockSize([4]).to_dim_vec(3) == (1, 1, 4)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (1, 6, 1, 2)])
def test_blocks_are_boxes(shape: tuple[int, ...]) -> None:
    for extents in itertools.product((1, 2, 3), repeat=len(shape)):
        layout = BlockLayout(shape, BlockSize(extents))
        wanted = [
            np.ravel_multi_index([c // e for c, e in zip(at, extents, strict=True)], layout.grid)
            for at in np.ndindex(*shape)
        ]
        size = int(np.prod(shape))
        assert [layout.block_of(i) for i in range(size)] == wanted
        np.testing.assert_array_equal(layout.block_of(np.arange(size)), wanted)
        assert layout.num_blocks() == len(set(wanted))
        numbers = np.arange(layout.num_blocks(), dtype=np.float32).reshape(layout.grid)
        np.testing.assert_array_equal(spread(numbers, extents, shape).ravel(), wanted)
        assert layout.divides() == all(s % e == 0 for s, e in zip(shape, extents, strict=True))


def test_scalars_and_indices_beyond_the_end() -> None:
    layout = BlockLayout((), BlockSize())
    assert (layout.num_blocks(), layout.block_of(0), layout.divides()) == (1, 0, True)
    with pytest.raises(ValueError, match="out of bounds"):
        BlockLayout((2, 2), BlockSize([2])).block_of(4)
