"""Write a ConvTranspose whose kernels do not overlap as Conv and DepthToSpace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import take_place
from lucid_fx.ir.walk import attribute, constant, input_at, is_op, nodes
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class UnrollConvTranspose(GraphPass):
    """Each output block comes from one input pixel, so a 1×1 Conv computes it.

    ``y = ConvTranspose <kernel_shape = [2,2], strides = [2,2]> (x, w)`` →
    ``t = Conv (x, w'); y = DepthToSpace <blocksize = 2> (t)``; overlapping kernels stay, since
    onnxruntime has no integer ConvTranspose.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            block = _block_size(node)
            weight, bias = constant(input_at(node, 1)), constant(input_at(node, 2))
            if block is None or weight is None or (input_at(node, 2) is not None and bias is None):
                continue
            emit, channels = Emit(model, names, node, self.name), weight.shape[1]
            # (in, out, kh, kw) -> (kh, kw, out, in): the channel order that DCR mode expects
            unrolled = weight.transpose(2, 3, 1, 0).reshape(-1, weight.shape[0], 1, 1)
            inputs = [node.inputs[0], emit.constant(unrolled, f"{node.name}_unrolled")]
            if bias is not None:
                inputs.append(emit.constant(np.tile(bias, block * block), f"{node.name}_bias"))
            dtype = node.outputs[0].dtype
            blocks = emit.op("Conv", inputs, {"kernel_shape": [1, 1]}, dtype=dtype)
            blocks.shape = _conv_shape(node, channels * block * block)
            spread = emit.op(
                "DepthToSpace", [blocks], {"blocksize": block, "mode": "DCR"},
                like=node.outputs[0], dtype=dtype,
            )  # fmt: skip
            ledger_of(model).record(node, "float", "written as Conv and DepthToSpace", self.name)
            take_place(node, [spread])
            changed = True
        return changed


def _conv_shape(node: ir.Node, channels: int) -> ir.Shape | None:
    source = node.inputs[0].shape if node.inputs[0] is not None else None
    return None if source is None else ir.Shape([source[0], channels, source[2], source[3]])


def _block_size(node: ir.Node) -> int | None:
    """The side of the blocks that a ConvTranspose writes without overlap; None otherwise."""
    if not is_op(node, "ConvTranspose"):
        return None
    weight = input_at(node, 1)
    if weight is None or weight.const_value is None or len(weight.const_value.shape) != 4:
        return None
    kernel = list(weight.const_value.shape.numpy()[2:])
    plain = (
        attribute(node, "group", 1) == 1
        and not any(attribute(node, "pads", [0]))
        and not any(attribute(node, "output_padding", [0]))
        and attribute(node, "output_shape") is None
        and attribute(node, "auto_pad", "NOTSET") in ("NOTSET", "VALID")
        and all(d == 1 for d in attribute(node, "dilations", [1]))
    )
    strides = list(attribute(node, "strides", [1, 1]))
    return kernel[0] if plain and kernel == strides and kernel[0] == kernel[1] else None
