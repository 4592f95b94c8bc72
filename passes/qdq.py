"""Writing QuantizeLinear and DequantizeLinear nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.naming import Names
from lucid_fx.ir.provenance import mark
from lucid_fx.ir.walk import opset
from lucid_fx.ops.emit import CONTRIB, Grid
from lucid_fx.quantization import QParams, qdq_constants, quantize

AXIS_OPSET = 13
"""First ONNX operator set whose Q and DQ have an axis; older models use onnxruntime's own ops."""
NO_KERNEL_OPSET = 28
"""First ONNX operator set whose Q and DQ onnxruntime 1.32 has no kernels for."""


class Codec:
    """Puts values and constants of one model on grids.

    Args:
        model: changed in place.
        names: all names of the model.
        pass_name: recorded on each new node.
    """

    def __init__(self, model: ir.Model, names: Names, pass_name: str) -> None:
        self.model, self.names, self.pass_name = model, names, pass_name
        self.domain = "" if AXIS_OPSET <= opset(model) < NO_KERNEL_OPSET else CONTRIB
        if self.domain:
            model.graph.opset_imports.setdefault(self.domain, 1)
        self._constants: dict[tuple[Any, ...], ir.Value] = {}

    def encode(self, value: ir.Value, qparams: QParams) -> tuple[ir.Value, Grid]:
        """Add Q right behind the producer of ``value``; gives codes and grid."""
        grid = self.grid(qparams, value.name or "")
        node = self._node("QuantizeLinear", [value, grid.scale, grid.zero_point], value, {})
        node.outputs[0].dtype = ir.DataType.from_numpy(qparams.qdtype.numpy_dtype)
        producer, graph = value.producer(), value.graph
        if producer is not None:
            producer.append(node)
        else:
            assert isinstance(graph, ir.Graph)
            first = next(iter(graph))
            graph.insert_before(first, node)
        return node.outputs[0], grid

    def decode(self, codes: ir.Value, grid: Grid, before: ir.Node, value: ir.Value) -> ir.Value:
        """Add DQ in front of a reader; gives the real value."""
        node = self._node("DequantizeLinear", [codes, grid.scale, grid.zero_point], value, {})
        node.outputs[0].dtype = ir.DataType.FLOAT
        before.prepend(node)
        return node.outputs[0]

    def decode_output(self, codes: ir.Value, grid: Grid, value: ir.Value) -> None:
        """Let a DQ make the graph output that ``value`` was."""
        node = self._node("DequantizeLinear", [codes, grid.scale, grid.zero_point], value, {})
        producer = codes.producer()
        assert producer is not None
        producer.append(node)
        output, name = node.outputs[0], value.name
        output.type, output.shape = value.type, value.shape
        graph = value.graph
        assert graph is not None
        for index, found in enumerate(graph.outputs):
            if found is value:
                graph.outputs[index] = output
        value.name = self.names.fresh(f"{name}_real")
        output.name = name

    def coded_input(self, node: ir.Node, index: int, codes: NDArray[Any], qparams: QParams) -> None:
        """Replace a constant input by DQ of its codes."""
        source = node.inputs[index]
        assert source is not None
        grid = self.grid(qparams, source.name or "")
        self._decode_constant(node, index, codes, grid, source, qdq_constants(qparams).attributes)

    def constant_input(
        self, node: ir.Node, index: int, array: NDArray[Any], qparams: QParams
    ) -> None:
        """Quantize a constant input and replace it by DQ of its codes."""
        self.coded_input(node, index, quantize(array, qparams), qparams)

    def bias_input(
        self, node: ir.Node, index: int, codes: NDArray[np.int32], scale: NDArray[np.float32]
    ) -> None:
        """Replace the bias by DQ of its int32 codes, on the grid of the products."""
        source = node.inputs[index]
        if source is None:
            source = ir.Value(name=self.names.fresh("bias"), type=ir.TensorType(ir.DataType.FLOAT))
        zero = np.zeros(scale.shape, np.int32)
        base = f"{node.name}_{source.name}"
        grid = Grid(self._constant(scale, f"{base}_scale"), self._constant(zero, f"{base}_zero"))
        self._decode_constant(node, index, codes, grid, source, {"axis": 0} if scale.ndim else {})

    def _decode_constant(
        self,
        node: ir.Node,
        index: int,
        codes: NDArray[Any],
        grid: Grid,
        source: ir.Value,
        attributes: dict[str, int],
    ) -> None:
        value = self._constant(codes, f"{source.name}_quantized")
        dq = self._node(
            "DequantizeLinear", [value, grid.scale, grid.zero_point], source, attributes
        )
        dq.outputs[0].type, dq.outputs[0].shape = source.type, ir.Shape(codes.shape)
        mark(dq, self.pass_name, [node])
        node.prepend(dq)
        node.replace_input_with(index, dq.outputs[0])

    def grid(self, qparams: QParams, base: str) -> Grid:
        """The grid as constants, shared where equal."""
        constants = qdq_constants(qparams)
        return Grid(
            self._constant(constants.scale, f"{base}_scale"),
            self._constant(constants.zero_point, f"{base}_zero_point"),
        )

    def _constant(self, array: NDArray[Any], base: str) -> ir.Value:
        key = (base, array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            name = self.names.fresh(base)
            tensor = ir.tensor(np.ascontiguousarray(array).reshape(array.shape), name=name)
            value = ir.Value(
                name=name,
                shape=ir.Shape(array.shape),
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
            self.model.graph.register_initializer(value)
            self._constants[key] = value
        return self._constants[key]

    def _node(
        self,
        op_type: str,
        inputs: list[ir.Value],
        value: ir.Value,
        attributes: dict[str, int],
    ) -> ir.Node:
        node = ir.node(op_type, inputs, attributes, domain=self.domain)
        node.name = self.names.fresh(f"{value.name}_{op_type}")
        suffix = "codes" if op_type == "QuantizeLinear" else "real"
        node.outputs[0].name = self.names.fresh(f"{value.name}_{suffix}")
        node.outputs[0].shape = value.shape
        producer = value.producer()
        mark(node, self.pass_name, [] if producer is None else [producer])
        return node
