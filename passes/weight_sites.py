"""Where a matrix product has a constant weight that can be kept on codes of a few bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.derived import read
from lucid_fx.ir.walk import attribute, input_at, is_constant, is_op, rank

LEAST_SIDE = 16
"""Least K and N: a block has 16 rows or more, a panel of packed weights 16 columns."""

LEAST_ELEMENTS = 4096
"""Below, 4 bits save less than 14 kB, about what another node and three tensors take in a file."""

ACTIVATIONS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


@dataclass(frozen=True)
class StoredWeight:
    """A constant matrix of the model, and how products read it.

    Attributes:
        tensor: where the numbers are.
        transposed: products read it as ``[N, K]``.
    """

    tensor: ir.TensorProtocol
    transposed: bool

    @property
    def name(self) -> str:
        """The initializer's name."""
        return self.tensor.name or ""

    @property
    def shape(self) -> tuple[int, int]:
        """``(K, N)``."""
        rows, columns = (int(size) for size in self.tensor.shape.numpy())
        return (columns, rows) if self.transposed else (rows, columns)

    def read(self) -> NDArray[Any]:
        """The real weights ``[K, N]``; those in a file are mapped, not copied.

        Raises:
            ModelError: the file is gone.
        """
        array = read(self.tensor)
        return array.T if self.transposed else array


@dataclass(frozen=True)
class WeightSite:
    """A product whose weight can be quantized: the node, and its weight."""

    node: ir.Node
    value: ir.Value
    weight: StoredWeight

    @property
    def input(self) -> ir.Value:
        """The activations."""
        value = self.node.inputs[0]
        assert value is not None
        return value


def find_site(node: ir.Node) -> WeightSite | str:
    """The weight of a MatMul or Gemm, or the reason why it has none that can be quantized."""
    operand = input_at(node, 1)
    found = _constant_matrix(operand)
    if found is None:
        if is_constant(node.inputs[0]) and is_op(node, "MatMul"):
            return "its constant is on the left"
        return "both of its operands are computed"
    value, transposed = found
    tensor = value.const_value
    assert tensor is not None
    if len(tensor.shape) != 2:
        return f"its weight {value.name!r} has {len(tensor.shape)} axes, not 2"
    reason = _type_refusal(node, tensor) or _form_refusal(node)
    if reason is not None:
        return reason
    weight = StoredWeight(tensor, transposed != bool(attribute(node, "transB", 0)))
    k, n = weight.shape
    if min(k, n) < LEAST_SIDE or k * n < LEAST_ELEMENTS:
        return f"its weight of {k} x {n} is small"
    return WeightSite(node, value, weight)


def shared_refusal(site: WeightSite, sites: Mapping[str, WeightSite]) -> str | None:
    """Why a weight must stay for others who read it; None where all of them are in ``sites``.

    Args:
        site: whose weight it is.
        sites: node name → site, of the products that are to be quantized in the same way.
    """
    if site.value.is_graph_output():
        return f"its weight {site.value.name!r} is a graph output"
    for reader in readers(site.value):
        other = sites.get(reader.name or "")
        if other is None or other.value is not site.value:
            name = site.value.name
            return f"its weight {name!r} stays shared with {reader.op_type} {reader.name!r}"
        if other.weight.transposed != site.weight.transposed:
            return f"its weight {site.value.name!r} is read transposed by {reader.name!r}"
    return None


def readers(value: ir.Value) -> list[ir.Node]:
    """The nodes that read a constant matrix, itself or through a Transpose for its products."""
    found: dict[int, ir.Node] = {}
    for use in value.uses():
        output = use.node.outputs[0]
        users = [use.node]
        if _swaps_axes(use.node) and not output.is_graph_output():
            users = [reader.node for reader in output.uses()] or users
        found.update((id(user), user) for user in users)
    return list(found.values())


def _constant_matrix(operand: ir.Value | None) -> tuple[ir.Value, bool] | None:
    """The constant behind an operand, and whether a Transpose stands between them."""
    if operand is not None and is_constant(operand):
        return operand, False
    producer = operand.producer() if operand is not None else None
    if producer is None or not _swaps_axes(producer):
        return None
    source = producer.inputs[0]
    return (source, True) if source is not None and is_constant(source) else None


def _swaps_axes(node: ir.Node) -> bool:
    if not is_op(node, "Transpose") or rank(node.inputs[0]) != 2:
        return False
    return list(attribute(node, "perm", [1, 0])) == [1, 0]


def _type_refusal(node: ir.Node, tensor: ir.TensorProtocol) -> str | None:
    given = node.inputs[0]
    dtype = None if given is None else given.dtype
    if dtype is None:
        return f"the type of {given.name if given is not None else ''!r} is not known"
    if dtype not in ACTIVATIONS:
        return f"it computes in {dtype}, and the kernels in float32 and float16"
    if tensor.dtype != dtype:
        return f"its weight is of {tensor.dtype}, and its activations of {dtype}"
    if is_op(node, "MatMul") and rank(given) in (0, 1):
        return "it multiplies a vector"
    return None


def _form_refusal(node: ir.Node) -> str | None:
    """What a Gemm does beyond a product and a bias."""
    if not is_op(node, "Gemm"):
        return None
    if attribute(node, "transA", 0):
        return "it transposes its activations"
    if attribute(node, "alpha", 1.0) != 1.0:
        return f"it scales the product by {attribute(node, 'alpha'):g}"
    added = input_at(node, 2)
    if added is not None and not is_constant(added) and attribute(node, "beta", 1.0) != 1.0:
        return f"it scales what it adds by {attribute(node, 'beta'):g}"
    return None
