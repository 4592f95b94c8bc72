"""What onnxruntime's CoreML provider would take of a model, forecast from rules on any machine.

The op table and the limits are those of onnxruntime 1.32's provider in the format MLProgram. On a
Mac the provider itself decides; shapes that are only known there can make it take less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.walk import ONNX_DOMAINS, input_at, is_constant, rank

CLAIMED = frozenset(
    {
        "Sigmoid", "Tanh", "Relu", "PRelu", "LeakyRelu", "Gelu", "Softplus", "Elu", "HardSigmoid",
        "Erf", "Reciprocal", "Round", "Sqrt", "Exp", "Sin", "Cos", "Ceil", "Add", "Div", "Mul",
        "Max", "Pow", "Sub", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool",
        "ReduceMean", "ReduceMin", "ReduceMax", "ReduceProd", "ReduceSum", "BatchNormalization",
        "GroupNormalization", "InstanceNormalization", "LayerNormalization", "And", "ArgMax",
        "Cast", "Clip", "Concat", "Conv", "ConvTranspose", "DepthToSpace", "Gather", "GatherND",
        "Gemm", "GridSample", "Identity", "MatMul", "Pad", "Reshape", "Resize", "Shape", "Slice",
        "Split", "Softmax", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
    }
)  # fmt: skip
MAX_RANK = 5
_REAL = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_PLACES = frozenset({"Gather", "GatherND", "Cast", "Shape", "ArgMax", "Slice", "Reshape", "Pad",
                     "Squeeze", "Unsqueeze", "Tile", "Where", "And", "Concat"})  # fmt: skip
"""Ops that may have inputs of other types than real numbers."""


@dataclass(frozen=True)
class Forecast:
    """Which nodes CoreML would run.

    Attributes:
        claimed: names, in topological order.
        partitions: how many separate parts they form; each costs a copy in and out.
        reasons: node name → why it stays on the CPU.
    """

    claimed: tuple[str, ...]
    partitions: int
    reasons: dict[str, str]


def forecast(model: ir.Model) -> Forecast:
    """The forecast for the main graph; bodies of If, Loop and Scan stay on the CPU by default."""
    every = list(model.graph)
    reasons = {node.name or "": reason for node in every if (reason := _why_not(node))}
    groups = _partitions(every, lambda node: node.name not in reasons)
    claimed = tuple(node.name or "" for group in groups for node in group)
    return Forecast(claimed, len(groups), reasons)


def _why_not(node: ir.Node) -> str:
    """Why a node stays on the CPU; empty when it does not."""
    if node.domain not in ONNX_DOMAINS or node.op_type not in CLAIMED:
        return f"CoreML's provider has no {node.op_type}"
    for value in (*node.inputs, *node.outputs):
        if value is None:
            continue
        if (dims := rank(value)) is not None and dims > MAX_RANK:
            return f"{value.name!r} has {dims} dimensions, more than {MAX_RANK}"
        if value.shape is not None and 0 in value.shape:
            return f"{value.name!r} has no elements"
    first = input_at(node, 0)
    dtype = first.dtype if first is not None else None
    if dtype is not None and dtype not in _REAL and node.op_type not in _PLACES:
        return f"{node.op_type} would compute on {dtype.name}"
    return _needs(node)


def _needs(node: ir.Node) -> str:
    """The limits of single ops: constant weights, one or two spatial axes."""
    weight = {"Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1,), "GatherND": (1,)}
    for index in weight.get(node.op_type, ()):
        value = input_at(node, index)
        if value is not None and not is_constant(value):
            return f"{node.op_type} needs input {index} to be a constant"
    dims = rank(input_at(node, 0))
    if node.op_type in ("Conv", "ConvTranspose") and dims is not None and dims > 4:
        return f"{node.op_type} has {dims - 2} spatial axes, more than 2"
    if node.op_type in ("AveragePool", "MaxPool", "BatchNormalization") and dims not in (None, 4):
        return f"{node.op_type} has an input of {dims} dimensions, not 4"
    return ""


def _partitions(every: list[ir.Node], takes: Callable[[ir.Node], bool]) -> list[list[ir.Node]]:
    """Groups of nodes that run in one piece: a group goes on while a node it takes is ready."""
    inside = set(every)
    waits = {node: len({p for p in node.predecessors() if p in inside}) for node in every}
    ready = deque(node for node in every if not waits[node])
    later: deque[ir.Node] = deque()
    groups: list[list[ir.Node]] = []
    group: list[ir.Node] = []
    while ready or later:
        if not ready:
            groups += [group] if group else []
            group, ready, later = [], later, ready
            for node in list(ready):
                ready.popleft()
                _finish(node, waits, ready)
            continue
        node = ready.popleft()
        if not takes(node):
            later.append(node)
            continue
        group.append(node)
        _finish(node, waits, ready)
    return groups + ([group] if group else [])


def _finish(node: ir.Node, waits: dict[ir.Node, int], ready: deque[ir.Node]) -> None:
    for reader in dict.fromkeys(node.successors()):
        if reader in waits:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
