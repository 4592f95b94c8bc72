"""Pad the channels of depthwise convolutions to whole vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.walk import attribute, constant, input_at, is_constant, is_op, nodes
from lucid_fx.ops.emit import CONTRIB, Emit
from lucid_fx.passes.pipeline import GraphPass

_THROUGH = (
    "Relu", "Clip", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "LeakyRelu",
    "GlobalAveragePool", "AveragePool", "MaxPool",
)  # fmt: skip
"""Ops that treat each channel alone, and need no operand for it."""


@dataclass(frozen=True)
class PadDepthwiseChannels(GraphPass):
    """onnxruntime's integer depthwise kernel does whole vectors fast and the rest one by one.

    ``c = Conv (x, w[200,…]); y = Conv <group = 200> (c, d); z = Conv (y, v)`` → the same with 208
    channels between the dense Convs, whose new weights are zero; a depthwise Conv that is reached
    from a graph input or a Concat stays.

    Attributes:
        integer: nodes that will compute on codes; others are not touched.
        width: channels in a vector; 0 does nothing.
        most: largest growth of the channel count that still pays.
    """

    integer: frozenset[str] = field(default_factory=frozenset)
    width: int = 16
    most: float = 1.34

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        changed, seen = False, set[int]()
        names = Names(model)
        for node in list(nodes(model)):
            channels = _depthwise_channels(node)
            if channels is None or node.name not in self.integer or id(node.outputs[0]) in seen:
                continue
            wanted = -(-channels // self.width) * self.width if self.width else channels
            if wanted == channels or wanted > self.most * channels:
                continue
            group = _Group(channels)
            if not group.collect(node.outputs[0]):
                continue
            seen.update(group.values)
            group.pad(wanted, lambda n: Emit(model, names, n, self.name))
            ledger_of(model).note(
                f"{node.name}: {channels} channels padded to {wanted}, whole vectors of the kernel"
            )
            changed = True
        return changed


def _depthwise_channels(node: ir.Node) -> int | None:
    """Channels of a depthwise Conv with one filter a channel; None for other nodes."""
    weight = input_at(node, 1)
    if not is_op(node, "Conv") or weight is None or not is_constant(weight):
        return None
    assert weight.const_value is not None
    shape = list(weight.const_value.shape.numpy())
    plain = attribute(node, "group", 1) == shape[0] > 1 and shape[1] == 1
    return shape[0] if plain else None


def _alone(node: ir.Node) -> bool:
    return is_op(node, *_THROUGH) or is_op(node, "QuickGelu", domain=CONTRIB)


class _Group:
    """Values that must have the same channel count, and the operands that have to grow with it."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.values: dict[int, ir.Value] = {}
        self.operands: dict[tuple[int, int], tuple[ir.Node, int, int]] = {}

    def collect(self, start: ir.Value) -> bool:
        """Follow the channels both ways; False where they reach something that cannot grow."""
        stack = [start]
        while stack:
            value = stack.pop()
            if id(value) in self.values:
                continue
            self.values[id(value)] = value
            producer = value.producer()
            if producer is None or value.is_graph_output() or value.is_graph_input():
                return False
            for node, index in [(producer, -1), *((use.node, use.idx) for use in value.uses())]:
                further = self._through(node, index)
                if further is None or node.graph is not producer.graph:
                    return False
                stack.extend(further)
        return True

    def _through(self, node: ir.Node, index: int) -> list[ir.Value] | None:
        """Further values of the group at a node that makes (-1) or reads (≥ 0) one of them."""
        if is_op(node, "Conv") and all(is_constant(v) for v in node.inputs[1:] if v is not None):
            return self._conv(node, index)
        ends = [v for v in (node.inputs[0], node.outputs[0]) if v is not None]
        if _alone(node) and index <= 0 and len(node.outputs) == 1:
            return ends
        if is_op(node, "ReduceMean") and index <= 0 and attribute(node, "axes") == [2, 3]:
            return ends if attribute(node, "keepdims", 1) else None
        if is_op(node, "Add", "Mul"):
            return self._binary(node)
        return None

    def _conv(self, node: ir.Node, index: int) -> list[ir.Value] | None:
        source = node.inputs[0]
        if index > 0 or source is None:
            return None
        if _depthwise_channels(node) == self.channels:
            self._grow(node, 1, 0)
            self._grow(node, 2, 0)
            return [source, node.outputs[0]]
        if attribute(node, "group", 1) != 1:
            return None
        if index == 0:
            self._grow(node, 1, 1)
        else:
            self._grow(node, 1, 0)
            self._grow(node, 2, 0)
        return []

    def _binary(self, node: ir.Node) -> list[ir.Value] | None:
        found = [node.outputs[0]]
        for at, value in enumerate(node.inputs):
            assert value is not None
            array = constant(value)
            if array is not None:
                full = (1,) * (4 - array.ndim) + array.shape
                if full[1] == self.channels:
                    self._grow(node, at, array.ndim - 3)
                elif full[1] != 1:
                    return None
            elif value.shape is None or len(value.shape) != 4:
                return None
            elif value.shape[1] == self.channels:
                found.append(value)
            elif value.shape[1] != 1:
                return None
        return found

    def _grow(self, node: ir.Node, index: int, axis: int) -> None:
        if input_at(node, index) is not None:
            self.operands[id(node), index * 10 + axis] = (node, index, axis)

    def pad(self, wanted: int, emit_at: Any) -> None:
        """Give every operand of the group ``wanted`` channels."""
        for node, index, axis in self.operands.values():
            value = node.inputs[index]
            array = constant(value)
            assert array is not None and value is not None
            width = [(0, 0)] * array.ndim
            width[axis] = (0, wanted - self.channels)
            grown: NDArray[Any] = np.pad(array, width)
            node.replace_input_with(index, emit_at(node).constant(grown, f"{value.name}_padded"))
            if _is_group(node, array, self.channels):
                node.attributes["group"] = ir.AttrInt64("group", wanted)
        for value in self.values.values():
            if value.shape is not None and len(value.shape) > 1:
                dims = list(value.shape)
                value.shape = ir.Shape([dims[0], wanted, *dims[2:]])


def _is_group(node: ir.Node, array: NDArray[Any], channels: int) -> bool:
    return is_op(node, "Conv") and array.ndim > 1 and attribute(node, "group", 1) == channels > 1
