"""Let a Conv do the zero padding in front of it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.rewrite import remove
from lucid_fx.ir.walk import attribute, constant, input_at, is_op, nodes, only_consumer
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class FusePadIntoConv(GraphPass):
    """Add the Pad's widths to the Conv's own.

    ``t = Pad (x, [0,0,1,1,0,0,1,1]); y = Conv (t, w)`` → ``y = Conv <pads = [1,1,1,1]> (x, w)``;
    a Pad with another value than zero, of channels, or of negative width stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        changed = False
        for conv in list(nodes(model)):
            pad = conv.inputs[0].producer() if is_op(conv, "Conv") and conv.inputs[0] else None
            if pad is None or not is_op(pad, "Pad") or pad.graph is not conv.graph:
                continue
            dims = _spatial_dims(conv)
            widths = None if dims is None else zero_pads(pad, dims)
            if widths is None or only_consumer(pad.outputs[0]) is not conv:
                continue
            if attribute(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
                continue
            own = list(attribute(conv, "pads", [0] * len(widths)))
            total = [a + b for a, b in zip(own, widths, strict=True)]
            conv.attributes.pop("auto_pad", None)
            conv.attributes["pads"] = ir.AttrInt64s("pads", total)
            conv.replace_input_with(0, pad.inputs[0])
            ledger_of(model).record(pad, "fused", f"padding of {conv.name}", self.name)
            remove(pad)
            changed = True
        return changed


def _spatial_dims(conv: ir.Node) -> int | None:
    """Number of image axes, from the weight."""
    weight = input_at(conv, 1)
    if weight is None:
        return None
    shape = weight.const_value.shape if weight.const_value is not None else weight.shape
    return None if shape is None else len(shape) - 2


def zero_pads(pad: ir.Node, dims: int) -> list[int] | None:
    """Widths at the image axes, all begins then all ends; None where a Conv cannot do the same."""
    if attribute(pad, "mode", "constant") != "constant":
        return None
    widths, value = constant(input_at(pad, 1)), constant(input_at(pad, 2))
    filled = input_at(pad, 2) is not None and (value is None or value.any())
    if widths is None or filled:
        return None
    axes = constant(input_at(pad, 3))
    if input_at(pad, 3) is not None and axes is None:
        return None
    places = range(dims + 2) if axes is None else [int(axis) % (dims + 2) for axis in axes]
    count, full = len(places), [0] * (2 * (dims + 2))
    if len(widths) != 2 * count:
        return None
    for index, place in enumerate(places):
        full[place] = int(widths[index])
        full[place + dims + 2] = int(widths[index + count])
    begins, ends = full[: dims + 2], full[dims + 2 :]
    if any((*begins[:2], *ends[:2])) or min(full) < 0:
        return None
    return [*begins[2:], *ends[2:]]
