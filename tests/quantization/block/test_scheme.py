"""Schemes as values, their levels, and what follows when axes move."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lucid_fx.quantization.block as b
from lucid_fx.quantization.block import QuantScheme, QuantStore, QuantValue, ScaleDtype


def test_builders_give_changed_copies_in_any_order() -> None:
    one = QuantScheme().per_tensor(ScaleDtype.F32).per_block([16], ScaleDtype.UE4M3)
    two = QuantScheme().per_block([1, 16], ScaleDtype.UE4M3).per_tensor(ScaleDtype.F32)
    assert one == two
    assert hash(one) == hash(two)
    changed = QuantScheme().with_value(QuantValue.E2M1).with_store(QuantStore.PackedNative(0))
    assert changed.per_block([16], ScaleDtype.UE4M3).per_tensor(ScaleDtype.F32) == b.nvfp4()
    assert changed.per_block([32], ScaleDtype.UE8M0) == b.mxfp4()
    assert QuantScheme().with_mode(b.QuantMode.Lookup) != QuantScheme()


@pytest.mark.parametrize("scheme", [QuantScheme(), b.nvfp4(), b.mxfp4()])
def test_json_gives_an_equal_scheme(scheme: QuantScheme) -> None:
    assert QuantScheme.from_json(scheme.to_json()) == scheme


@pytest.mark.parametrize("change", [{"value": "Q9"}, {"block": {"size": [2]}}, {"store": None}])
def test_what_describes_no_scheme_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        QuantScheme.from_json(QuantScheme().to_json() | change)
    with pytest.raises(ValueError, match="does not describe a scheme"):
        QuantScheme.from_json({"value": "Q8F"})


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_blocks_and_the_packed_axis_follow_their_axes(axes: tuple[int, ...]) -> None:
    shape, block = (6, 8, 9), (2, 4, 3)
    for dim in range(3):
        scheme = QuantScheme(store=QuantStore.PackedU32(dim)).per_block(block, ScaleDtype.F32)
        moved = scheme.permute(3, axes)
        assert moved.block_size() == b.BlockSize([block[axis] for axis in axes])
        new_dim = moved.packing_dim()
        assert new_dim is not None
        new_shape = [shape[axis] for axis in axes]
        assert new_shape[-1 - new_dim] == shape[-1 - dim]
        back = moved.permute(3, np.argsort(axes).tolist())
        assert back == scheme
        assert moved.block == scheme.permute_block_dims(3, axes).block


def test_swapping_and_reshaping() -> None:
    scheme = QuantScheme(store=QuantStore.PackedU32(2)).per_block([2, 4], ScaleDtype.F16)
    assert scheme.swap_block_dims(3, 0, 2).block_size() == b.BlockSize([4, 2, 1])
    assert scheme.swap_block_dims(3, 0, 2).store == scheme.store
    assert scheme.reshape(3) == scheme
    assert scheme.reshape(2).packing_dim() == 0
    native = QuantScheme(store=QuantStore.Native)
    assert native.reshape(0) == native == native.permute(2, [1, 0])


def test_axes_that_are_no_permutation_are_refused() -> None:
    for axes in ([0, 0], [1, 2], [0]):
        with pytest.raises(ValueError, match="no permutation of the 2 axes"):
            QuantScheme().permute(2, axes)
    with pytest.raises(ValueError, match="packed axis 3"):
        QuantScheme(store=QuantStore.PackedU32(3)).permute(2, [0, 1])


def test_levels_that_can_be_computed() -> None:
    block = {dtype: QuantScheme().per_block([4], dtype) for dtype in ScaleDtype}
    assert all(b.quantizable(scheme) for scheme in block.values())
    two = {d.name for d, s in block.items() if b.quantizable(s.per_tensor(ScaleDtype.F32))}
    assert two == {"F16", "UE4M3"}
    assert not b.quantizable(block[ScaleDtype.F16].per_tensor(ScaleDtype.F16))


def test_global_scales_need_both_levels() -> None:
    tensor = QuantScheme().per_tensor(ScaleDtype.BF16)
    assert (b.global_scale_dtype(tensor), b.global_scale_size(tensor)) == (None, 0)
    both = tensor.per_block([4], ScaleDtype.F16)
    assert (b.global_scale_dtype(both), b.global_scale_size(both)) == (ScaleDtype.BF16, 2)
    assert both.tensor_scale() is ScaleDtype.BF16
    assert both.num_levels() == 2
