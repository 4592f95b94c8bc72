"""Bring tensors of the float graph into the form in which the quantized graph holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.extraction import extract
from lucid_fx.ir.pairing import EVERYTHING, Pair
from lucid_fx.ir.walk import rank, require_domain

CONTRIB = "com.microsoft"


def align_outputs(model: ir.Model, pairs: Sequence[Pair]) -> None:
    """Let the first graph outputs of a float graph have the form of the quantized graph.

    ``x`` becomes ``Transpose (Pad (Clip (x) / factor))``, as float32, as far as the pair says so.

    Args:
        model: changed in place; its first outputs are the tensors of ``pairs``, in order.
        pairs: for each of these outputs.
    """
    for at, pair in enumerate(pairs):
        value = model.graph.outputs[at]
        for op_type, constants, attributes in _steps(value, pair):
            value = _append(model, op_type, value, constants, attributes)
        model.graph.outputs[at] = value


_MOST = float(np.finfo(np.float32).max)

Step = tuple[str, list[NDArray[Any]], dict[str, Any]]


def _steps(value: ir.Value, pair: Pair) -> list[Step]:
    steps: list[Step] = []
    dims = rank(value) or 0
    if value.dtype != ir.DataType.FLOAT:
        steps.append(("Cast", [], {"to": int(ir.DataType.FLOAT)}))
    if pair.needed != EVERYTHING:
        ends = [np.asarray(end, np.float32) for end in np.clip(pair.needed, -_MOST, _MOST)]
        steps.append(("Clip", ends, {}))
    if pair.evening is not None:
        shape = [-1] if pair.evening.axis == -1 else [-1] + [1] * (dims - 2)
        steps.append(("Mul", [(1 / pair.evening.factor).reshape(shape)], {}))
    if pair.padding:
        pads = np.zeros(2 * dims, np.int64)
        pads[dims + 1] = pair.padding
        steps.append(("Pad", [pads], {}))
    if pair.channels_last:
        steps.append(("Transpose", [], {"perm": [0, *range(2, dims), 1]}))
    return steps


def _append(
    model: ir.Model,
    op_type: str,
    value: ir.Value,
    constants: Sequence[NDArray[Any]],
    attributes: dict[str, Any],
) -> ir.Value:
    """A node at the end of the graph that reads a value and constants of its own."""
    base = f"{value.name}~{op_type}"
    inputs = [value, *(_constant(model, c, f"{base}{i}") for i, c in enumerate(constants))]
    node = ir.node(op_type, inputs, attributes, name=base)
    node.outputs[0].name = base
    node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    if value.shape is not None:
        node.outputs[0].shape = ir.Shape([None] * len(value.shape))
    model.graph.append(node)
    return node.outputs[0]


def _constant(model: ir.Model, array: NDArray[Any], name: str) -> ir.Value:
    tensor = ir.tensor(np.ascontiguousarray(array), name=name)
    value = ir.Value(
        name=name,
        shape=ir.Shape(array.shape),
        type=ir.TensorType(tensor.dtype),
        const_value=tensor,
    )
    model.graph.register_initializer(value)
    return value


def restored(array: NDArray[Any], pair: Pair) -> NDArray[Any]:
    """From the form of the quantized graph back to that of the float graph."""
    if pair.channels_last:
        array = np.moveaxis(array, -1, 1)
    if pair.padding:
        array = array[:, : array.shape[1] - pair.padding]
    if pair.evening is not None:
        shape = [-1] if pair.evening.axis == -1 else [-1] + [1] * (array.ndim - 2)
        array = array * pair.evening.factor.reshape(shape)
    return np.ascontiguousarray(array)


def clean_layers(
    quantized: ir.Model, inputs: Sequence[Pair], outputs: Sequence[Pair]
) -> tuple[ir.Model, list[str]]:
    """Layers of a quantized graph, each with inputs from outside.

    Args:
        quantized: not changed.
        inputs: tensors that readers take from graph inputs, which hold float values in the form of
            the quantized graph; they are put on their grids.
        outputs: tensors to give.

    Returns:
        The model, whose inputs are named as the codes with ``~given``, and what it gives.
    """
    names = [pair.codes for pair in outputs]
    part = extract(quantized, {pair.codes: given_name(pair) for pair in inputs}, names)
    by_name = {given_name(pair): pair for pair in inputs}
    for value in list(part.graph.inputs):
        pair = by_name.get(value.name or "")
        if pair is not None and pair.grid is not None:
            _encode(part, value, pair)
    return part, names


def given_name(pair: Pair) -> str:
    """The graph input from which the readers of a tensor take it."""
    return f"{pair.codes}~given"


def _encode(model: ir.Model, value: ir.Value, pair: Pair) -> None:
    grid = pair.grid
    assert grid is not None
    require_domain(model, CONTRIB)
    name = value.name or ""
    real = ir.Value(name=name, shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT))
    scale = _constant(model, np.asarray(grid.scale, np.float32), f"{name}~scale")
    zero = _constant(model, np.asarray(grid.zero_point, grid.dtype), f"{name}~zero_point")
    node = ir.node("QuantizeLinear", [real, scale, zero], {}, domain=CONTRIB, name=f"{name}~Q")
    codes = node.outputs[0]
    codes.name, codes.shape = f"{name}~codes", value.shape
    codes.type = ir.TensorType(ir.DataType.from_numpy(grid.dtype))
    value.replace_all_uses_with(codes, replace_graph_outputs=True)
    model.graph.inputs[list(model.graph.inputs).index(value)] = real
    model.graph.insert_before(next(iter(model.graph)), node)
