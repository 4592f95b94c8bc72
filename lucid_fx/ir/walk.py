"""Walking a model: all graphs with their If/Loop/Scan bodies, constants, attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

ONNX_DOMAINS = ("", "ai.onnx")


def graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph and every body inside it, outer ones first."""
    yield model.graph
    yield from model.graph.subgraphs()


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of the model, bodies included."""
    yield from ir.traversal.RecursiveGraphIterator(model.graph)


def is_op(node: ir.Node | None, *op_types: str, domain: str = "") -> bool:
    """Whether ``node`` is one of these ops of a domain (the ONNX one by default)."""
    if node is None or node.op_type not in op_types:
        return False
    return node.domain in ONNX_DOMAINS if domain == "" else node.domain == domain


def constant(value: ir.Value | None) -> NDArray[Any] | None:
    """The array of a constant value, None when it is computed at run time or absent."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def is_constant(value: ir.Value | None) -> bool:
    """Whether the value is known now, without reading its data."""
    return value is not None and value.const_value is not None and not value.is_graph_input()


def scalar(value: ir.Value | None) -> float | None:
    """The number of a constant with one element, else None."""
    array = constant(value) if value is not None and size(value) == 1 else None
    return None if array is None else float(array.reshape(-1)[0])


def size(value: ir.Value) -> int | None:
    """Number of elements where the shape is static, else None."""
    shape = value.const_value.shape if value.const_value is not None else value.shape
    if shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    return int(np.prod([int(dim) for dim in shape if isinstance(dim, int)], dtype=np.int64))


def rank(value: ir.Value | None) -> int | None:
    """Number of dimensions where known."""
    if value is None:
        return None
    shape = value.const_value.shape if value.const_value is not None else value.shape
    return None if shape is None else len(shape)


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of an attribute, or ``default``."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """An input, None where it is omitted."""
    return node.inputs[index] if index < len(node.inputs) else None


def only_consumer(value: ir.Value) -> ir.Node | None:
    """The single consumer of a value that is no graph output, else None."""
    consumers = {use.node for use in value.uses()}
    if len(consumers) != 1 or value.is_graph_output():
        return None
    return next(iter(consumers))


def is_float(value: ir.Value | None) -> bool:
    """Whether the value is a tensor that is known to hold real numbers."""
    if value is None or not isinstance(value.type, ir.TensorType):
        return False
    return value.dtype in (
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.BFLOAT16,
        ir.DataType.DOUBLE,
    )


def opset(model: ir.Model) -> int:
    """The version of the ONNX operator set that the model imports."""
    versions = model.graph.opset_imports
    return versions.get("", versions.get("ai.onnx", 1))


def require_domain(model: ir.Model, domain: str, version: int = 1) -> None:
    """Import an operator domain if the model does not yet."""
    model.graph.opset_imports.setdefault(domain, version)
