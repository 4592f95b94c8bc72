"""Even out the ranges of channels that share one grid, by factors that the weights undo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.walk import constant, is_constant, is_op, rank
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.equalization_sites import Site, find_sites
from lucid_fx.passes.linear import along_input, is_depthwise
from lucid_fx.passes.pipeline import GraphPass

Ranges = Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
"""Value name → smallest and largest real value of each channel."""

WIDEST = 64.0
"""Largest ratio of factors where a constant operand on 8 bits has to hold them."""


@dataclass(frozen=True)
class EqualizeChannels(GraphPass):
    """Divide channels by their range where they are made, and multiply the weights that read them.

    ``t = Conv (x, w, b); y = Conv (t, v)`` → ``t = Conv (x, w/s, b/s); y = Conv (t, v·s)``: the
    numbers stay, and each channel of ``t`` uses the whole grid. A value with a reader that is not
    linear, or made by an op that is not homogeneous, stays. (Nagel et al. 2019, section 4.1; Xiao
    et al. 2023 for matrix products.)

    Attributes:
        factors: value name → factor of each channel, from `channel_factors`.
    """

    factors: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place."""
        names, changed = Names(model), False
        for site in find_sites(model):
            factor = self.factors.get(site.value.name or "")
            if factor is None:
                continue
            for node in site.makers:
                _divide(Emit(model, names, node, self.name), node, factor, site.axis)
            for node in site.readers:
                weight = constant(node.inputs[1])
                assert weight is not None
                scaled = weight * along_input(node, weight, factor)
                _replace(Emit(model, names, node, self.name), node, 1, scaled.astype(weight.dtype))
            ledger_of(model).note("channel ranges were evened out in front of linear ops")
            changed = True
        return changed


def channel_factors(site: Site, ranges: Ranges) -> NDArray[Any] | None:
    """The factor of each channel of a site; None where its ranges are not known.

    A depthwise reader has a weight grid for each channel, so the whole imbalance can go there;
    others share the burden evenly between activation and weight.
    """
    found = ranges.get(site.value.name or "")
    if found is None:
        return None
    reach = np.maximum(np.abs(found[0]), np.abs(found[1])).astype(np.float64)
    alive = reach > 0
    if not alive.any() or not np.isfinite(reach).all():
        return None
    factor = np.where(alive, reach, 1.0)
    if not all(is_depthwise(node) for node in site.readers):
        columns = np.max([_input_reach(node, len(reach)) for node in site.readers], axis=0)
        factor = np.sqrt(factor / np.where(columns > 0, columns, 1.0))
    top = factor[alive].max()
    factor = np.where(alive, np.maximum(factor / top, 1 / WIDEST), 1.0)
    return _representable(site, factor)


def _representable(site: Site, factor: NDArray[Any]) -> NDArray[Any]:
    """Factors for which the 8-bit constant of a Mul is exact, so that the weights undo it."""
    for node in site.makers:
        if is_op(node, "Mul"):
            operand = next(a for v in node.inputs if (a := constant(v)) is not None)
            flat = np.asarray(operand, np.float64).reshape(-1)
            wanted = np.broadcast_to(flat, factor.shape) / factor
            step = np.abs(wanted).max() / 255
            codes = np.where(wanted == 0, 0, np.sign(wanted) * np.maximum(np.rint(np.abs(wanted) / step), 1))
            return np.where(codes == 0, 1.0, flat / np.where(codes == 0, 1, codes * step))
    return factor


def _divide(emit: Emit, node: ir.Node, factor: NDArray[Any], axis: int) -> None:
    """Divide what a node makes by the factors, through its constants."""
    if is_op(node, "Conv"):
        weight = constant(node.inputs[1])
        assert weight is not None
        shaped = factor.reshape([-1] + [1] * (weight.ndim - 1))
        _replace(emit, node, 1, (weight / shaped).astype(weight.dtype))
        indexes, shape = [2], [-1]
    elif is_op(node, "LayerNormalization"):
        indexes, shape = [1, 2], [-1]
    else:
        dims = rank(node.outputs[0]) or 4
        indexes = [at for at, value in enumerate(node.inputs) if is_constant(value)]
        shape = [-1] + [1] * (dims - 1 - axis % dims)
    for index in indexes:
        array = constant(node.inputs[index]) if index < len(node.inputs) else None
        if array is not None:
            flat = array.reshape(-1) / factor
            _replace(emit, node, index, flat.reshape(shape).astype(array.dtype))


def _replace(emit: Emit, node: ir.Node, index: int, array: NDArray[Any]) -> None:
    base = node.inputs[index].name if node.inputs[index] is not None else node.name  # type: ignore[union-attr]
    node.replace_input_with(index, emit.constant(array, f"{base}_equalized"))


def _input_reach(node: ir.Node, channels: int) -> NDArray[Any]:
    """Largest |weight| of each input channel."""
    weight = constant(node.inputs[1])
    assert weight is not None
    ones = along_input(node, weight, np.arange(channels, dtype=np.float64))
    axis = int(np.argmax(ones.shape))
    rows = np.abs(np.moveaxis(weight, axis, 0)).reshape(weight.shape[axis], -1).max(axis=1)
    return np.asarray(rows.reshape(channels, -1).max(axis=1), np.float64)
