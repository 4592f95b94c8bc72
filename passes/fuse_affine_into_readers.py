"""Fold a factor or offset by constants into the linear ops that read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import bypass
from lucid_fx.ir.walk import attribute, constant, input_at, is_op, nodes
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.equalization_sites import data_operand, linear_readers
from lucid_fx.passes.linear import along_input, is_depthwise, output_channels
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class FuseAffineIntoReaders(GraphPass):
    """Put a constant factor into the weights, and an offset into the biases, of all readers.

    ``t = Mul (x, s); y = Conv (t, w)`` → ``y = Conv (x, w·s)``, and ``t = Add (x, c); y = Conv (t,
    w)`` → ``y = Conv (x, w, w·c)``; an offset in front of a Conv that pads stays, since the padding
    is zero, and so does what a depthwise Conv reads, where factors even out channel ranges.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in reversed(list(nodes(model))):
            readers = linear_readers(node.outputs[0]) if is_op(node, "Mul", "Add") else ()
            if not readers or any(is_depthwise(reader) for reader in readers):
                continue
            axis = 1 if is_op(readers[0], "Conv") else -1
            data = data_operand(node, axis)
            operand = next((a for v in node.inputs if (a := constant(v)) is not None), None)
            if data is None or operand is None:
                continue
            fold = _factor if is_op(node, "Mul") else _offset
            if is_op(node, "Add") and not all(_takes_offset(reader) for reader in readers):
                continue
            for reader in readers:
                fold(Emit(model, names, reader, self.name), reader, operand.reshape(-1))
            ledger_of(model).record(
                node, "fused", "folded into the linear ops that read it", self.name
            )
            changed |= bypass(node, data)
        return changed


def _takes_offset(reader: ir.Node) -> bool:
    """Whether an offset of the input is one of the output: no zero padding, and a bias."""
    if is_op(reader, "Gemm"):
        return bool(
            attribute(reader, "beta", 1.0) == 1.0 and attribute(reader, "alpha", 1.0) == 1.0
        )
    plain = not any(attribute(reader, "pads", [0]))
    return is_op(reader, "Conv") and plain and attribute(reader, "auto_pad", "NOTSET") in (
        "NOTSET", "VALID",
    )  # fmt: skip


def _factor(emit: Emit, reader: ir.Node, operand: NDArray[Any]) -> None:
    weight = constant(reader.inputs[1])
    assert weight is not None and reader.inputs[1] is not None
    scaled = weight * along_input(reader, weight, _by_channel(reader, weight, operand))
    name = f"{reader.inputs[1].name}_scaled"
    reader.replace_input_with(1, emit.constant(scaled.astype(weight.dtype), name))


def _offset(emit: Emit, reader: ir.Node, operand: NDArray[Any]) -> None:
    weight, bias = constant(reader.inputs[1]), constant(input_at(reader, 2))
    assert weight is not None
    shares = weight * along_input(reader, weight, _by_channel(reader, weight, operand))
    out = 1 if is_op(reader, "Gemm") and not attribute(reader, "transB", 0) else 0
    shift = (
        np.moveaxis(shares.astype(np.float64), out, 0).reshape(shares.shape[out], -1).sum(axis=1)
    )
    total = shift if bias is None else shift + np.broadcast_to(bias.reshape(-1), shift.shape)
    if len(reader.inputs) < 3:
        reader.resize_inputs(3)
    name = f"{reader.name}_offset_bias"
    reader.replace_input_with(2, emit.constant(total.astype(weight.dtype), name))
    assert output_channels(reader) == total.size


def _by_channel(reader: ir.Node, weight: NDArray[Any], operand: NDArray[Any]) -> NDArray[Any]:
    """The operand with one entry for each input channel of the weight."""
    transposed = is_op(reader, "Conv") or attribute(reader, "transB", 0)
    channels = weight.shape[1 if transposed else 0]
    return np.broadcast_to(operand.astype(np.float64), (channels,))
