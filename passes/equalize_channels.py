"""Even out the ranges of channels that share one grid, by factors that the weights undo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.evening import record_evened
from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.naming import Names
from lucid_fx.ir.walk import constant, is_constant, is_op, rank
from lucid_fx.ops.emit import Emit
from lucid_fx.passes.equalization_sites import Site, find_sites
from lucid_fx.passes.linear import along_input, weight_by_input
from lucid_fx.passes.pipeline import GraphPass

Ranges = Mapping[str, tuple[NDArray[Any], NDArray[Any]]]
"""Value name → smallest and largest real value of each channel."""

WIDEST = 64.0
"""Largest ratio of factors where a constant operand on 8 bits has to hold them."""


SHARES = (0.0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""How much of the imbalance of the activation goes to the weights."""

WORTH_A_MUL = 0.5
"""Share of the noise that may be left for a Mul of its own to pay."""


@dataclass(frozen=True)
class EqualizeChannels(GraphPass):
    """Divide channels by their range where they are made, and multiply the weights that read them.

    ``t = Conv (x, w, b); y = Conv (t, v)`` → ``t = Conv (x, w/s, b/s); y = Conv (t, v·s)``: the
    numbers stay, and each channel of ``t`` uses the whole grid. Where no constants make a value,
    a Mul divides it. What a Conv and another kind of op read together stays. (Nagel et al. 2019,
    section 4.1; Xiao et al. 2023 for matrix products.)

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
            if not site.makers:
                self._put_factor(model, names, site, factor)
            for node in site.makers:
                _divide(Emit(model, names, node, self.name), node, factor, site.axis)
            if site.makers:
                for value in (site.value, *site.between):
                    record_evened(model, value, site.axis, factor, made_even=True)
            for node in site.readers:
                weight = constant(node.inputs[1])
                assert weight is not None
                scaled = weight * along_input(node, weight, factor)
                _replace(Emit(model, names, node, self.name), node, 1, scaled.astype(weight.dtype))
            ledger_of(model).note("channel ranges were evened out in front of linear ops")
            changed = True
        return changed

    def _put_factor(self, model: ir.Model, names: Names, site: Site, factor: NDArray[Any]) -> None:
        """A Mul by 1/factor in front of the readers.

        In front of Convs, which read nothing else of it, the even value takes over the name: it is
        what goes on the grid. In front of matrix products others may read the value as it is.
        """
        first = min(site.readers, key=lambda node: list(node.graph or ()).index(node))
        emit = Emit(model, names, first, self.name, site.readers)
        shape = [-1] if site.axis == -1 else [-1] + [1] * ((rank(site.value) or 4) - 2)
        scale = (1 / factor).astype(np.float32).reshape(shape)
        name = site.value.name or ""
        inputs = [site.value, emit.constant(scale, f"{name}_evening")]
        even = emit.op("Mul", inputs, like=site.value, dtype=site.value.dtype)
        for node in site.readers:
            node.replace_input_with(0, even)
        if site.axis == 1:
            site.value.name, even.name = names.fresh(f"{name}_uneven"), name
            record_evened(model, even, 1, factor, made_even=False)


def channel_factors(site: Site, ranges: Ranges) -> NDArray[Any] | None:
    """The factor of each channel of a site; None where ranges are not known or little is gained.

    Candidates are ``reach ** a / weight reach ** (1 - a)`` for shares ``a`` of the burden, which
    move from evening out the weights to evening out the activation; the one with the least
    predicted noise wins.
    """
    found = ranges.get(site.value.name or "")
    if found is None:
        return None
    low, high = (np.asarray(end, np.float64) for end in found)
    reach = np.maximum(np.abs(low), np.abs(high))
    alive = reach > 0
    if not alive.any() or not np.isfinite(reach).all():
        return None
    weights = [weight_by_input(node, len(reach)) for node in site.readers]
    columns = np.max([np.abs(rows).max(axis=(1, 2)) for rows in weights], axis=0)
    columns = np.where(columns > 0, columns, 1.0)
    as_it_is = np.ones_like(reach)
    best, least = as_it_is, predicted_noise(weights, low, high, as_it_is)
    limit = least * (WORTH_A_MUL if not site.makers else 1.0)
    for share in SHARES:
        factor = np.where(alive, np.where(alive, reach, 1.0) ** share / columns ** (1 - share), 1.0)
        top = factor[alive].max()
        factor = np.where(alive, np.maximum(factor / top, 1 / WIDEST), 1.0)
        noise = predicted_noise(weights, low, high, factor)
        if noise < least:
            best, least = factor, noise
    return _representable(site, best) if least < limit else None


def predicted_noise(
    weights: list[NDArray[Any]], low: NDArray[Any], high: NDArray[Any], factor: NDArray[Any]
) -> float:
    """Noise power of the outputs when the input is divided and the weight multiplied.

    Args:
        weights: for each reader, (input channels, taps, outputs that share a weight grid).
        low, high: range of each channel.
        factor: of each channel.

    Rounding the input to 255 steps of its whole range makes noise through the weights, and rounding
    the weights to 255 steps of each output's range makes noise through the input, whose power is
    taken as that of a spread that reaches eight deviations, as outlier channels do.
    """
    step = ((high / factor).max(initial=0) - (low / factor).min(initial=0)) / 255
    power = (np.maximum(np.abs(low), np.abs(high)) / factor / 8) ** 2
    total = 0.0
    for rows in weights:
        scaled = rows * factor[:, None, None]
        total += step**2 / 12 * float(np.sum(scaled**2))
        if rows.shape[2] == 1:  # depthwise: each channel has a weight grid of its own
            grids = (2 * np.abs(scaled).max(axis=(1, 2)) / 255) ** 2 / 12
            total += float(np.sum(grids * power)) * rows.shape[1]
        else:
            grids = (2 * np.abs(scaled).max(axis=(0, 1)) / 255) ** 2 / 12
            total += float(np.sum(grids)) * float(np.sum(power)) * rows.shape[1]
    return total


def _representable(site: Site, factor: NDArray[Any]) -> NDArray[Any]:
    """Factors for which the 8-bit constant of a Mul is exact, so that the weights undo it."""
    for node in site.makers:
        if is_op(node, "Mul"):
            operand = next(a for v in node.inputs if (a := constant(v)) is not None)
            flat = np.asarray(operand, np.float64).reshape(-1)
            wanted = np.broadcast_to(flat, factor.shape) / factor
            step = np.abs(wanted).max() / 255
            codes = np.where(
                wanted == 0, 0, np.sign(wanted) * np.maximum(np.rint(np.abs(wanted) / step), 1)
            )
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
