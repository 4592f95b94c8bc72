"""Grids of the tensors of a quantized graph, read from the nodes that code or compute on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.walk import constant, input_at, is_constant, nodes

GridValues = tuple[ir.Value | None, ir.Value | None, ir.Value | None]
"""A tensor, its scale and its zero point."""

GRID_PLACES: dict[str, tuple[tuple[str, int, int, int], ...]] = {
    # op: (side, position of the tensor, of its scale, of its zero point)
    "QuantizeLinear": (("in", 0, 1, 2),),
    "DequantizeLinear": (("in", 0, 1, 2),),
    "QLinearConv": (("in", 0, 1, 2), ("in", 3, 4, 5), ("out", 0, 6, 7)),
    "QLinearMatMul": (("in", 0, 1, 2), ("in", 3, 4, 5), ("out", 0, 6, 7)),
    "QLinearAdd": (("in", 0, 1, 2), ("in", 3, 4, 5), ("out", 0, 6, 7)),
    "QLinearMul": (("in", 0, 1, 2), ("in", 3, 4, 5), ("out", 0, 6, 7)),
    "QGemm": (("in", 0, 1, 2), ("in", 3, 4, 5), ("out", 0, 7, 8)),
    "QLinearWhere": (("in", 1, 2, 3), ("in", 4, 5, 6), ("out", 0, 7, 8)),
    "QLinearReduceMean": (("in", 0, 1, 2), ("out", 0, 3, 4)),
    "QLinearAveragePool": (("in", 0, 1, 2), ("out", 0, 3, 4)),
    "QLinearGlobalAveragePool": (("in", 0, 1, 2), ("out", 0, 3, 4)),
    "QLinearLeakyRelu": (("in", 0, 1, 2), ("out", 0, 3, 4)),
    "QLinearSigmoid": (("in", 0, 1, 2), ("out", 0, 3, 4)),
    "QLinearSoftmax": (("in", 0, 1, 2), ("out", 0, 3, 4)),
    "MatMulIntegerToFloat": (("in", 0, 2, 4), ("in", 1, 3, 5)),
    "DynamicQuantizeMatMul": (("in", 1, 2, 3),),
    "DynamicQuantizeLSTM": (("in", 1, 8, 9), ("in", 2, 10, 11)),
}


def grid_values(node: ir.Node) -> Iterator[GridValues]:
    """The tensors that a node puts, or finds, on a grid, each with scale and zero point."""
    if node.op_type == "QLinearConcat":
        yield node.outputs[0], input_at(node, 0), input_at(node, 1)
        for index in range(2, len(node.inputs), 3):
            yield input_at(node, index), input_at(node, index + 1), input_at(node, index + 2)
    for side, tensor, scale, zero_point in GRID_PLACES.get(node.op_type, ()):
        value = input_at(node, tensor) if side == "in" else node.outputs[tensor]
        yield value, input_at(node, scale), input_at(node, zero_point)


def codes_type(tensor: ir.Value, zero_point: ir.Value | None) -> ir.DataType | None:
    """The integer type of the codes of a tensor, as far as the graph tells."""
    kind = zero_point.dtype if zero_point is not None else None
    if zero_point is not None and is_constant(zero_point) and zero_point.const_value is not None:
        kind = zero_point.const_value.dtype
    if kind is None:
        kind = tensor.const_value.dtype if tensor.const_value is not None else tensor.dtype
    return kind


@dataclass(frozen=True, eq=False)
class CodeGrid:
    """One grid for a whole tensor of computed codes.

    Attributes:
        scale: real value of one code step.
        zero_point: the code of real zero.
        dtype: integer type of the codes.
        scale_value, zero_value: the constants in the graph.
    """

    scale: float
    zero_point: int
    dtype: np.dtype[Any]
    scale_value: ir.Value
    zero_value: ir.Value

    @property
    def codes(self) -> tuple[int, int]:
        """The smallest and the largest code."""
        limits = np.iinfo(self.dtype)
        return int(limits.min), int(limits.max)

    @property
    def range(self) -> tuple[float, float]:
        """The real values of the smallest and the largest code."""
        low, high = self.codes
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale

    def rounded(self, real: NDArray[Any]) -> NDArray[np.float32]:
        """Real values as the grid holds them."""
        codes = np.clip(np.rint(real / np.float32(self.scale)) + self.zero_point, *self.codes)
        return np.asarray((codes - self.zero_point) * self.scale, np.float32)


def code_grids(model: ir.Model) -> dict[str, CodeGrid]:
    """The grid of every value of the main graph that holds computed 8- or 16-bit codes.

    A QuantizeLinear's grid is that of its output. Where the readers take the codes for other reals
    than the node that makes them, as behind an op whose factor is in the next scale, their grid
    counts. Grids for each channel, and grids that are computed at run time, are left out.
    """
    made: dict[str, CodeGrid] = {}
    read: dict[str, CodeGrid] = {}
    for node in nodes(model):
        for tensor, scale, zero_point in grid_values(node):
            codes = node.outputs[0] if node.op_type == "QuantizeLinear" else tensor
            if codes is None or is_constant(codes) or scale is None:
                continue
            grid = _grid(codes, scale, zero_point)
            if grid is not None:
                side = made if codes.producer() is node else read
                side.setdefault(codes.name or "", grid)
    return made | read


def _grid(codes: ir.Value, scale: ir.Value, zero_point: ir.Value | None) -> CodeGrid | None:
    step, zero, kind = constant(scale), constant(zero_point), codes_type(codes, zero_point)
    if step is None or step.size != 1 or zero is None or zero_point is None or kind is None:
        return None
    dtype = np.dtype(kind.numpy())
    if dtype.kind not in "iu" or dtype.itemsize > 2 or not float(step.reshape(-1)[0]) > 0:
        return None
    step, zero = step.reshape(-1), zero.reshape(-1)
    return CodeGrid(float(step[0]), int(zero[0]), dtype, scale, zero_point)
