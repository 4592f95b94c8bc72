"""Writing new nodes beside an old one: fresh names, provenance and initializers kept right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.naming import Names
from lucid_fx.ir.provenance import mark
from lucid_fx.ir.walk import constant

CONTRIB = "com.microsoft"
"""Domain of onnxruntime's own operators."""

NATIVE = "lucid_fx"
"""Domain of the operators of the native library."""


@dataclass(frozen=True)
class Grid:
    """Scale and zero point of a tensor, as constants of the graph."""

    scale: ir.Value
    zero_point: ir.Value

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Scale (real value of a code step) and zero point (code)."""
        scale, zero_point = constant(self.scale), constant(self.zero_point)
        assert scale is not None and zero_point is not None
        return scale, zero_point


@dataclass(frozen=True)
class Quantized:
    """Codes of a tensor with their grid."""

    codes: ir.Value
    grid: Grid

    @property
    def args(self) -> list[ir.Value]:
        """Codes, scale, zero point: the order in which QLinear ops take them."""
        return [self.codes, self.grid.scale, self.grid.zero_point]


class Emit:
    """Builds nodes that stand for ``sources``, in front of ``before``.

    Args:
        model: where domains are imported.
        names: all names of the model.
        before: the node in front of which new ones go.
        pass_name: recorded on each new node.
        sources: the nodes that the new ones stand for; ``before`` by default.
    """

    def __init__(
        self,
        model: ir.Model,
        names: Names,
        before: ir.Node,
        pass_name: str,
        sources: Sequence[ir.Node] = (),
    ) -> None:
        self.model, self.names, self.before = model, names, before
        self.pass_name, self.sources = pass_name, tuple(sources) or (before,)

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        outputs: int = 1,
        dtype: ir.DataType | None = None,
        like: ir.Value | None = None,
        name: str | None = None,
    ) -> ir.Value:
        """Add a node and give its first output (`ops` gives all)."""
        return self.ops(
            op_type, inputs, attributes, domain=domain, outputs=outputs, dtype=dtype, like=like,
            name=name,
        )[0]  # fmt: skip

    def ops(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        outputs: int = 1,
        dtype: ir.DataType | None = None,
        like: ir.Value | None = None,
        name: str | None = None,
    ) -> Sequence[ir.Value]:
        """Add a node and give its outputs.

        Args:
            op_type, inputs, attributes, domain: the node.
            outputs: how many.
            dtype: element type of the outputs.
            like: value whose shape the outputs have.
            name: base of the node's name.
        """
        base = name or f"{self.before.name}_{op_type}"
        node = ir.node(
            op_type, list(inputs), dict(attributes or {}), domain=domain, num_outputs=outputs
        )
        node.name = self.names.fresh(base)
        for index, value in enumerate(node.outputs):
            value.name = self.names.fresh(f"{node.name}_out{index or ''}")
            if dtype is not None:
                value.dtype = dtype
            if like is not None:
                value.shape = like.shape
        if domain and domain not in self.model.graph.opset_imports:
            self.model.graph.opset_imports[domain] = 1
        mark(node, self.pass_name, self.sources)
        graph = self.before.graph
        assert isinstance(graph, ir.Graph)
        graph.insert_before(self.before, node)
        return node.outputs

    def constant(self, array: NDArray[Any] | ir.TensorProtocol, name: str) -> ir.Value:
        """An initializer of the main graph, visible from every body."""
        name = self.names.fresh(name)
        tensor = ir.tensor(array, name=name) if isinstance(array, np.ndarray) else array
        value = ir.Value(
            name=name,
            shape=ir.Shape(tensor.shape.numpy()),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self.model.graph.register_initializer(value)
        return value

    def grid(self, scale: Any, zero_point: Any, dtype: Any, name: str) -> Grid:
        """A grid as two initializers."""
        return Grid(
            self.constant(np.asarray(scale, np.float32), f"{name}_scale"),
            self.constant(np.asarray(zero_point, dtype), f"{name}_zero_point"),
        )
