"""Recognise hard-swish written out by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from lucid_fx.ir.naming import Names
from lucid_fx.ir.rewrite import hand_over, remove, take_place
from lucid_fx.ir.walk import is_op, nodes, only_consumer, scalar
from lucid_fx.ops.elementwise import clip_bounds
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.pipeline import GraphPass


@dataclass(frozen=True)
class FuseHardSwish(GraphPass):
    """Write ``clip(x + 3, 0, 6) / 6`` as HardSigmoid, and HardSwish as x · HardSigmoid(x).

    ``a = Add (x, 3); c = Clip (a, 0, 6); m = Mul (x, c); y = Mul (m, 1/6)`` →
    ``h = HardSigmoid (x); y = Mul (x, h)``: HardSigmoid has an exact form on codes, a saturating
    addition. A Clip whose lower bound is not zero stays.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for node in list(nodes(model)):
            if node.graph is None:
                continue
            if is_op(node, "HardSwish"):
                changed |= self._split(model, names, node)
            elif is_op(node, "Clip"):
                changed |= self._gather(model, names, node)
        return changed

    def _split(self, model: ir.Model, names: Names, node: ir.Node) -> bool:
        emit, output = Emit(model, names, node, self.name), node.outputs[0]
        like: dict[str, Any] = {"like": output, "dtype": output.dtype}
        gate = emit.op("HardSigmoid", [node.inputs[0]], {"alpha": 1 / 6, "beta": 0.5}, **like)
        take_place(node, [emit.op("Mul", [node.inputs[0], gate], **like)])
        return True

    def _gather(self, model: ir.Model, names: Names, clip: ir.Node) -> bool:
        shifted = clip.inputs[0].producer() if clip.inputs[0] is not None else None
        bounds = clip_bounds(clip)
        if shifted is None or not is_op(shifted, "Add") or bounds is None:
            return False
        x, offset = _value_and_scalar(shifted)
        low, high = bounds
        if x is None or offset is None or low != 0 or not 0 < offset < high < np.inf:
            return False
        if only_consumer(shifted.outputs[0]) is not clip:
            return False
        emit = Emit(model, names, clip, self.name, (shifted, clip))
        output = clip.outputs[0]
        like: dict[str, Any] = {"like": output, "dtype": output.dtype}
        attributes = {"alpha": 1 / high, "beta": offset / high}
        gate = emit.op("HardSigmoid", [x], attributes, **like)
        scale = emit.constant(np.asarray(high, output.dtype.numpy()), f"{clip.name}_max")  # type: ignore[union-attr]
        scaled = emit.op("Mul", [gate, scale], **like)
        take_place(clip, [scaled])
        shifted.graph.remove(shifted, safe=True)  # type: ignore[union-attr]
        self._cancel(scaled.producer(), high)
        return True

    def _cancel(self, scaled: ir.Node | None, high: float) -> None:
        """Drop ``· high`` where a later ``/ high`` undoes it: right behind, or behind ``x ·``."""
        if scaled is None:
            return
        following = only_consumer(scaled.outputs[0])
        path = [following]
        product = following is not None and is_op(following, "Mul")
        if following is not None and product and _value_and_scalar(following)[1] is None:
            path.append(only_consumer(following.outputs[0]))
        last = path[-1]
        if last is None or not is_op(last, "Mul"):
            return
        data, factor = _value_and_scalar(last)
        if factor is None or data is None or abs(factor * high - 1) > 1e-5:
            return
        gate = scaled.inputs[0]
        assert gate is not None
        scaled.outputs[0].replace_all_uses_with(gate)
        remove(scaled)
        hand_over(last.outputs[0], gate if last is following else data)
        remove(last)


def _value_and_scalar(node: ir.Node) -> tuple[ir.Value | None, float | None]:
    """The data operand and the constant operand of a binary node, if it has such a pair."""
    for data, other in (node.inputs, reversed(node.inputs)):
        number = scalar(other)
        if number is not None and scalar(data) is None:
            return data, number
    return None, None
