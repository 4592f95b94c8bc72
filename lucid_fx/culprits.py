"""Why a layer loses what it loses: named rules with thresholds, and the setting that changes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.ir.pairing import EVERYTHING
from lucid_fx.paired_run import Measured
from lucid_fx.tensor_error import TensorError, decibels

CLIPPED = 4.0
"""Noise of the values outside the grid, over the noise of rounding: one bit and more is lost."""
UNLIKE = 8.0
"""A range this many times another's costs the smaller one three of its eight bits."""
FEW = 0.25
"""Values that use less of the grid than this waste two bits."""
MORE = 1.5
"""The grid of a result is looked at where it makes this many times the noise of any input."""
HEALTHY_DB = 30.0
"""A layer that keeps this is well: rounding to 8 bits alone leaves 30 to 45 dB."""
FAULTLESS_DB = 45.0
"""Better than 8 bits can be: what a rule finds there costs nothing."""
BIT_DB = 6.0
"""What a fault is looked at before: a layer without one that keeps a bit less."""
PLAIN = ("rounding", "weight rounding")
"""Reasons of layers that have no fault but 8 bits."""


@dataclass
class CloseLook:
    """What is known of one tensor from the samples that are looked at closely.

    Attributes:
        signal, layer: squares of the float tensor, and of the noise of its layer on clean inputs.
        from_input: noise that the rounding of each input alone makes.
        reach: largest absolute value of each channel, for axis 1 and for the last one.
    """

    signal: float = 0.0
    layer: float = 0.0
    from_input: dict[str, float] = field(default_factory=dict)
    reach: dict[int, NDArray[Any]] = field(default_factory=dict)

    def add(self, seen: Measured) -> None:
        """Take one sample."""
        needed = EVERYTHING if seen.pair.evening is not None else seen.pair.needed
        own = TensorError(seen.pair.grid, needed)
        own.add(seen.exact, seen.clean)
        self.signal += own.signal
        self.layer += own.noise
        for name, array in seen.from_input.items():
            error = TensorError(None, needed)
            error.add(seen.exact, array)
            self.from_input[name] = self.from_input.get(name, 0.0) + error.noise
        exact = seen.exact
        axis = -1 if seen.pair.channels_last else 1
        for at in {axis % exact.ndim, exact.ndim - 1} if exact.ndim > 1 else ():
            others = tuple(a for a in range(exact.ndim) if a != at)
            reach = np.maximum(exact.max(axis=others), -exact.min(axis=others))
            reach = np.where(np.isfinite(reach), reach, 0.0)
            if at in self.reach and self.reach[at].size != reach.size:
                self.reach.pop(at)  # an axis of changing length is none of channels
            else:
                self.reach[at] = np.maximum(self.reach.get(at, 0.0), reach)


@dataclass(frozen=True)
class Culprit:
    """A node that loses accuracy, and why.

    Attributes:
        node, op_type: in the float model.
        tensor: whose grid is the cause, or what the node makes.
        sqnr_db: of the worst layer that suffers from it, on clean inputs.
        layers: these layers, by the node that ends each.
        reason: the rule's name.
        text: one line that says what was found.
        setting: what changes it.
    """

    node: str
    op_type: str
    tensor: str
    sqnr_db: float
    layers: tuple[str, ...]
    reason: str
    text: str
    setting: str


@dataclass(frozen=True)
class Evidence:
    """All that the rules look at.

    Attributes:
        pairs: by float tensor, in the order of the graph.
        given: error of each tensor over all samples.
        own: error of each layer on clean inputs, over the samples that are measured whole.
        looks: by float tensor.
        inputs: float tensor → the tensors that its layer reads.
        owners: float tensor → name and op of the node that says most of its layer.
        weights: float tensor → weight codes of its layer, zero point taken off, output channels
            first, and whether each of these has its own scale.
    """

    pairs: Mapping[str, Any]
    given: Mapping[str, TensorError]
    own: Mapping[str, TensorError]
    looks: Mapping[str, CloseLook]
    inputs: Mapping[str, Sequence[str]]
    owners: Mapping[str, tuple[str, str]]
    weights: Mapping[str, tuple[NDArray[Any], bool]]


def find_culprits(evidence: Evidence, top: int) -> list[Culprit]:
    """The nodes behind the worst layers, worst first, each once.

    Of layers that keep `HEALTHY_DB`, only those for which a rule finds more than rounding; of
    those that keep `FAULTLESS_DB`, none.
    """
    ranked = [
        (ratio, name)
        for name, error in evidence.own.items()
        if (ratio := own_sqnr_db(error, evidence.given[name])) is not None
        and ratio < FAULTLESS_DB
        and _on_codes(evidence, name)
    ]
    found: dict[tuple[str, str], Culprit] = {}
    every = [_explain(evidence, name, ratio) for ratio, name in ranked]
    for one in sorted(every, key=lambda c: c.sqnr_db + (BIT_DB if c.reason in PLAIN else 0)):
        if one.sqnr_db >= HEALTHY_DB and one.reason in PLAIN:
            continue
        key = one.tensor, one.reason
        if key in found:
            layers = (*found[key].layers, *one.layers)
            found[key] = replace(found[key], layers=tuple(dict.fromkeys(layers)))
        else:
            found[key] = one
    return list(found.values())[:top]


def own_sqnr_db(own: TensorError, given: TensorError) -> float | None:
    """What a layer keeps by itself; values outside its grid count wherever they were met."""
    if not own.signal or not given.signal:
        return own.sqnr_db
    return decibels(1.0, max(own.noise / own.signal, given.outside / given.signal))


def _on_codes(evidence: Evidence, name: str) -> bool:
    around = [name, *evidence.inputs[name]]
    return name in evidence.weights or any(evidence.pairs[n].grid is not None for n in around)


def _explain(evidence: Evidence, name: str, ratio: float) -> Culprit:
    """Blame the largest part of a layer's noise: an input's grid, the output's, or the weights'."""
    look, own = evidence.looks[name], evidence.own[name]
    power = max(look.signal, 1e-30)
    parts = {n: noise / power for n, noise in look.from_input.items()}
    largest = max(parts.values(), default=0.0)
    given = evidence.given[name]
    grid_noise = given.grid_noise / given.signal if given.signal else 0.0
    if grid_noise > MORE * largest:  # an op that only moves codes rounds nothing anew
        parts[name] = grid_noise
    blamed = max(parts, key=lambda n: parts[n], default=name)
    rest = min(look.layer / power, own.noise / own.signal) - sum(parts.values())
    if name in evidence.weights and rest > parts.get(blamed, 0.0):
        blamed, (reason, text, setting) = name, _weights_rule(evidence, name)
    else:
        reason, text, setting = _grid_rule(evidence, blamed)
    node, op_type = evidence.owners[blamed]
    return Culprit(
        node,
        op_type,
        blamed,
        ratio,
        (evidence.owners[name][0],),
        reason,
        text,
        setting,
    )


def _grid_rule(evidence: Evidence, name: str) -> tuple[str, str, str]:
    """Reason, what was found, and the setting, for a tensor whose grid is the cause."""
    pair, look = evidence.pairs[name], evidence.looks[name]
    node = evidence.owners[name][0]
    readers = [n for n, inputs in evidence.inputs.items() if name in inputs]
    reader = evidence.owners[readers[0]][0] if readers else node
    if pair.grid is None:
        return "rounding", "its layer rounds at run time", f"--exclude {node}"
    low, high = pair.grid.range
    own = evidence.given[name]
    if own.outside > CLIPPED * (own.grid_noise - own.outside):
        share = own.clipped / max(own.elements, 1)
        told = f"{share:.2%} of its values lie outside its grid [{low:.4g}, {high:.4g}]"
        return "clipped range", told, f"more calibration samples, or --observer minmax for {node}"
    spans = {n: evidence.given[n] for n in evidence.inputs[name]}
    reaches = {n: max(abs(s.low), abs(s.high)) for n, s in spans.items()}
    least, most = (min(reaches.values(), default=0.0), max(reaches.values(), default=0.0))
    if len(reaches) > 1 and most > UNLIKE * least > 0 and evidence.owners[name][1] == "Concat":
        small = min(reaches, key=lambda n: reaches[n])
        codes = max(1, round(2 * least / pair.grid.scale))
        told = f"one grid for inputs of unlike range: {small} (to {least:.3g}) has {codes} codes"
        return "shared grid", f"{told}, another reaches {most:.3g}", f"--exclude {reader}"
    channel = outlier(look)
    if channel is not None:
        index, times = channel
        told = f"channel {index} reaches {times:.0f} times as far as the middle one on one grid"
        return "outlier channel", told, f"--exclude {reader}, whose input keeps too few codes"
    used = (max(own.high, 0.0) - min(own.low, 0.0)) / (high - low)
    if used < FEW:
        told = f"the values [{own.low:.4g}, {own.high:.4g}] use {used:.0%} of its grid"
        return "few codes used", told, f"--observer histogram for {node}, typical samples"
    told = f"its values spread wider than 8 bits resolve (step {pair.grid.scale:.3g})"
    return "rounding", told, f"--exclude {reader}"


def outlier(look: CloseLook) -> tuple[int, float] | None:
    """The channel that reaches `UNLIKE` times as far as the middle one, and how many times."""
    best: tuple[int, float] | None = None
    for reach in look.reach.values():
        alive = reach[reach > 0]
        if alive.size < 2:
            continue
        times = float(reach.max() / np.median(alive))
        if times >= UNLIKE and (best is None or times > best[1]):
            best = int(reach.argmax()), times
    return best


def _weights_rule(evidence: Evidence, name: str) -> tuple[str, str, str]:
    """The same for a layer whose weights, or whose kernel, are the cause."""
    codes, per_channel = evidence.weights[name]
    node = evidence.owners[name][0]
    rows = np.abs(codes.reshape(codes.shape[0], -1)).astype(np.float64)
    middle = np.maximum(np.median(rows, axis=1), 0.5)
    times = float(np.median(rows.max(axis=1) / middle))
    if times >= UNLIKE:
        inputs = np.abs(codes.reshape(*codes.shape[:2], -1)).max(axis=(0, 2))
        columns = np.bincount(
            np.abs(codes.reshape(*codes.shape[:2], -1)).max(axis=2).argmax(axis=1),
            minlength=len(inputs),
        )
        told = f"weights of input {int(columns.argmax())} are {times:.0f} times the others"
        return "outlier weights", f"{told}, which keep few codes", f"--exclude {node}"
    tops = rows.max(axis=1)
    if not per_channel and tops.max() > UNLIKE * max(float(np.median(tops)), 0.5):
        told = "output channels of unlike size share one weight scale"
        return "shared weight grid", told, f'recipe: "{node}": {{"weight": "per-channel"}}'
    return "weight rounding", "its weights are coarse in 8 bits", f"--exclude {node}"
