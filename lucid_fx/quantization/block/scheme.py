"""Everything that says how a tensor is quantized: `QuantScheme` and questions about it.

Source: the block-scaled specification, sections 5 and 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lucid_fx.quantization.block.layout import BlockSize
from lucid_fx.quantization.block.scales import ScaleDtype, scale_size
from lucid_fx.quantization.block.values import QuantMode, QuantPropagation, QuantStore, QuantValue

_LARGEST_RELATIVE = ScaleDtype.F16.max_representable
"""Block scales under a tensor scale may reach as far as float16 does."""


@dataclass(frozen=True)
class BlockScale:
    """The scales of blocks: how large a block is and the format of its scale (section 5)."""

    size: BlockSize
    dtype: ScaleDtype


@dataclass(frozen=True)
class QuantScheme:
    """How a tensor is quantized; a value, changed by its ``with_`` and ``per_`` methods only.

    Attributes:
        value: the format of a code; Q8F by default.
        store: how codes lie in memory; words along the last axis by default.
        mode: how a code gives a real value; Symmetric by default.
        tensor: the format of a scale over the whole tensor, as `per_tensor` set it.
        block: the scales of blocks, as `per_block` set them.

    Without any level there is one F32 scale for the tensor; such a scheme *behaves* like
    ``per_tensor(ScaleDtype.F32)`` but is not equal to it. With both levels, the real value of a
    code step is the product of the tensor's scale and the block's.
    """

    value: QuantValue = QuantValue.Q8F
    store: QuantStore = field(default_factory=QuantStore.PackedU32)
    mode: QuantMode = QuantMode.Symmetric
    tensor: ScaleDtype | None = None
    block: BlockScale | None = None

    def with_value(self, value: QuantValue) -> QuantScheme:
        """The same with another code format."""
        return replace(self, value=value)

    def with_store(self, store: QuantStore) -> QuantScheme:
        """The same with another place for codes."""
        return replace(self, store=store)

    def with_mode(self, mode: QuantMode) -> QuantScheme:
        """The same with another meaning of codes."""
        return replace(self, mode=mode)

    def per_tensor(self, dtype: ScaleDtype) -> QuantScheme:
        """The same with a scale over the whole tensor."""
        return replace(self, tensor=dtype)

    def per_block(self, block: BlockSize | Sequence[int], dtype: ScaleDtype) -> QuantScheme:
        """The same with a scale for each block."""
        size = block if isinstance(block, BlockSize) else BlockSize(block)
        return replace(self, block=BlockScale(size, dtype))

    def tensor_scale(self) -> ScaleDtype | None:
        """The format of the tensor's scale; F32 without any level, None with blocks alone."""
        return ScaleDtype.F32 if self.tensor is None and self.block is None else self.tensor

    def block_scale(self) -> BlockScale | None:
        """The scales of blocks, if there are any."""
        return self.block

    def block_size(self) -> BlockSize | None:
        """The extents of a block, if there are blocks."""
        return None if self.block is None else self.block.size

    def scale_dtype(self) -> ScaleDtype:
        """The format of the innermost scales: of blocks if there are any, else of the tensor."""
        if self.block is not None:
            return self.block.dtype
        return self.tensor or ScaleDtype.F32

    def num_levels(self) -> int:
        """2 when both the tensor and its blocks have scales, else 1."""
        return 2 if self.tensor is not None and self.block is not None else 1

    def size_bits_stored(self) -> int:
        """Bits of one stored unit."""
        return self.store.size_bits(self.value)

    def size_bits_value(self) -> int:
        """Bits of one code."""
        return self.value.size_bits

    def num_quants(self) -> int:
        """Codes in one stored unit."""
        return self.store.num_quants(self.value)

    def packing_dim(self) -> int | None:
        """The packed axis counted from the innermost, None for Native."""
        return self.store.dim

    def swap_block_dims(self, rank: int, dim0: int, dim1: int) -> QuantScheme:
        """The same with two axes of the block exchanged, axes counted from the outermost."""
        axes = list(range(rank))
        axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
        return self.permute_block_dims(rank, axes)

    def permute_block_dims(self, rank: int, axes: Sequence[int]) -> QuantScheme:
        """The same with the axes of the block permuted: new axis i is old axis ``axes[i]``.

        Raises:
            ValueError: ``axes`` is no permutation of ``range(rank)``.
        """
        axes = _permutation(rank, axes)
        if self.block is None:
            return self
        extents = self.block.size.to_dim_vec(rank)
        return self.per_block([extents[axis] for axis in axes], self.block.dtype)

    def permute(self, rank: int, axes: Sequence[int]) -> QuantScheme:
        """The scheme of a tensor whose axes are permuted: the block and the packed axis follow."""
        axes = _permutation(rank, axes)
        scheme = self.permute_block_dims(rank, axes)
        if self.store.dim is None or rank == 0:
            return scheme
        if self.store.dim >= rank:
            raise ValueError(f"the packed axis {self.store.dim} is beyond a tensor of rank {rank}")
        moved = axes.index(rank - 1 - self.store.dim)
        return scheme.with_store(replace(self.store, dim=rank - 1 - moved))

    def reshape(self, rank: int) -> QuantScheme:
        """The scheme of a tensor of another rank: a packed axis that it lacks becomes the last."""
        if self.store.dim is None or self.store.dim < max(rank, 1):
            return self
        return self.with_store(replace(self.store, dim=0))

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values; `from_json` gives an equal scheme."""
        block = self.block
        return {
            "value": self.value.value,
            "store": self.store.to_json(),
            "mode": self.mode.value,
            "tensor": None if self.tensor is None else self.tensor.value,
            "block": block and {"size": list(block.size), "dtype": block.dtype.value},
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> QuantScheme:
        """Read what `to_json` gave.

        Raises:
            ValueError: a field is missing or has a value that is not known.
        """
        try:
            tensor, block = fields["tensor"], fields["block"]
            return cls(
                QuantValue(fields["value"]),
                QuantStore.from_json(fields["store"]),
                QuantMode(fields["mode"]),
                None if tensor is None else ScaleDtype(tensor),
                block and BlockScale(BlockSize(block["size"]), ScaleDtype(block["dtype"])),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{fields!r} does not describe a scheme ({error!r})") from error


@dataclass(frozen=True)
class QuantConfig:
    """How a device quantizes: with which scheme, and what operations on quantized tensors give."""

    scheme: QuantScheme = field(default_factory=QuantScheme)
    propagation: QuantPropagation = QuantPropagation.Inhibit


def nvfp4() -> QuantScheme:
    """E2M1 pairs with a UE4M3 scale for 16 elements and an F32 scale over the tensor."""
    scheme = QuantScheme(QuantValue.E2M1, QuantStore.PackedNative(0))
    return scheme.per_block([16], ScaleDtype.UE4M3).per_tensor(ScaleDtype.F32)


def mxfp4() -> QuantScheme:
    """E2M1 pairs with a power of two as the scale of 32 elements."""
    scheme = QuantScheme(QuantValue.E2M1, QuantStore.PackedNative(0))
    return scheme.per_block([32], ScaleDtype.UE8M0)


def global_scale_dtype(scheme: QuantScheme) -> ScaleDtype | None:
    """The format of the tensor's scale over block scales, None when there is one level only."""
    return scheme.tensor if scheme.num_levels() == 2 else None


def global_scale_size(scheme: QuantScheme) -> int:
    """Bytes of the tensor's scale over block scales, 0 when there is one level only."""
    dtype = global_scale_dtype(scheme)
    return 0 if dtype is None else scale_size(dtype)


def params_shape(shape: Sequence[int], scheme: QuantScheme) -> tuple[int, ...]:
    """The shape of the innermost scales: ``(1,)`` for the tensor, else blocks along each axis.

    Args:
        shape: of the tensor; partial blocks at the end have scales too.
        scheme: the tensor's scale over block scales is not counted.
    """
    block = scheme.block_size()
    return (1,) if block is None else block.num_blocks(shape)


def quantizable(scheme: QuantScheme) -> bool:
    """Whether the scales of a scheme can be computed (section 7).

    A tensor's scale over blocks must be F32, and their format may not reach beyond float16. Says
    nothing about the code format and the store.
    """
    if scheme.num_levels() == 1:
        return True
    within = scheme.scale_dtype().max_representable <= _LARGEST_RELATIVE
    return bool(within) and scheme.tensor is ScaleDtype.F32


def _permutation(rank: int, axes: Sequence[int]) -> list[int]:
    axes = [int(axis) for axis in axes]
    if sorted(axes) != list(range(rank)):
        raise ValueError(f"axes is {axes}, which is no permutation of the {rank} axes")
    return axes
