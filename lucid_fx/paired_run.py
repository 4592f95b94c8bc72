"""Runs a float model, a quantized one and its layers on clean inputs, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.graph_module import Feed
from lucid_fx.ir.aligning import align_outputs, clean_layers, given_name, restored
from lucid_fx.ir.extraction import computed, extract
from lucid_fx.ir.pairing import Pair, layer_inputs, pair_tensors
from lucid_fx.ir.serde import shapes_for
from lucid_fx.ir.walk import is_op, only_consumer, scalar
from lucid_fx.ops.table import needed_range
from lucid_fx.runtime.segmented import SegmentedModel
from lucid_fx.runtime.session import Session

Array = NDArray[Any]

GROUP_BYTES = 64 * 2**20
"""Bytes of intermediate tensors that are held together."""
UNKNOWN_BYTES = 2**20
"""What a tensor is taken for whose shape is not known before it is computed."""


@dataclass(frozen=True)
class Measured:
    """One tensor in one sample, all in the form of the quantized graph.

    Attributes:
        pair: which tensor.
        exact: of the float model.
        given: codes (or real values) of the quantized model.
        clean: what the layer makes of the float model's tensors, put on their grids.
        from_input: input tensor → what the float layer makes of it when this one input is put on
            its grid; empty except in a close look.
    """

    pair: Pair
    exact: Array
    given: Array
    clean: Array
    from_input: Mapping[str, Array]


class PairedRun:
    """Both models cut into the same groups of tensors.

    Args:
        model, quantized: main graphs with known types; not changed.
        sample: decides what fits together and what is held at a time.
        group_bytes: see `GROUP_BYTES`.
        needed: float tensor → range outside which its readers tell no values apart, where more is
            known than from each op alone.

    Attributes:
        pairs: tensors that are measured, in the order of the quantized graph.
        unmatched: tensors that are in both, but have shapes that do not fit, with the reason.
        inputs: float tensor → the paired tensors that its layer reads.
    """

    def __init__(
        self,
        model: ir.Model,
        quantized: ir.Model,
        sample: Feed,
        group_bytes: int = GROUP_BYTES,
        needed: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self.model, self.quantized = model, quantized
        self.needed = {name: needed_range(value) for name, value in computed(model).items()}
        self.needed |= needed or {}
        found = [
            replace(pair, needed=self.needed[pair.tensor])
            for pair in pair_tensors(model, quantized)
        ]
        groups = _grouped(found, _sizes(model, sample), group_bytes)
        self.unmatched: dict[str, str] = {}
        self.groups = [group for group in self._first_look(groups, sample) if group]
        self.pairs = [pair for group in self.groups for pair in group]
        self.inputs = layer_inputs(quantized, self.pairs)
        self._by_name = {pair.tensor: pair for pair in self.pairs}
        self._float = SegmentedModel(
            model,
            [[pair.tensor for pair in group] for group in self.groups],
            lambda part, at: align_outputs(part, self.groups[at]),
        )
        self._quantized = SegmentedModel(quantized, [[p.codes for p in g] for g in self.groups])
        self._layers = [self._clean_session(group) for group in self.groups]
        self._close: dict[int, Session] = {}
        self._last = {
            name: at
            for at, group in enumerate(self.groups)
            for pair in group
            for name in (pair.tensor, *self.inputs[pair.tensor])
        }

    def _first_look(self, groups: Sequence[Sequence[Pair]], sample: Feed) -> Iterator[list[Pair]]:
        """The pairs that hold: shapes fit, and what was found by provenance was not rescaled."""
        floats = SegmentedModel(self.model, [[p.tensor for p in group] for group in groups])
        codes = SegmentedModel(self.quantized, [[p.codes for p in group] for group in groups])
        values = computed(self.model)
        for group, a, b in zip(groups, floats.run(sample), codes.run(sample), strict=True):
            kept = []
            for pair, exact, given in zip(group, a, b, strict=True):
                fitted = fit(pair, exact.shape, given.shape)
                if fitted is None:
                    told = f"shape {list(exact.shape)} in the float model, {list(given.shape)} in"
                    self.unmatched[pair.tensor] = f"{told} the quantized one"
                    continue
                gain = None if pair.named else _gain(fitted, exact, given)
                moved = fitted if gain is None else self._behind_factor(fitted, values, gain)
                if moved is not None:
                    kept.append(moved)
                else:
                    self.unmatched[pair.tensor] = f"a pass rescaled it by {gain:.4g}"
            yield kept

    def _behind_factor(
        self, pair: Pair, values: Mapping[str, ir.Value], gain: float
    ) -> Pair | None:
        """The pair with the float tensor behind a constant factor; None where there is none."""
        reader = only_consumer(values[pair.tensor])
        if reader is None or not is_op(reader, "Mul", "Div"):
            return None
        found = [n for v in reader.inputs if (n := scalar(v)) is not None]
        if not found:
            return None
        factor = 1 / found[0] if is_op(reader, "Div") else found[0]
        if abs(factor - gain) > 0.05 * abs(gain):
            return None
        output = reader.outputs[0]
        return replace(
            pair, tensor=output.name or "", node=reader.name or "", op_type=reader.op_type,
            needed=self.needed[output.name or ""],
        )  # fmt: skip

    def _given(self, group: Sequence[Pair]) -> list[Pair]:
        """The tensors that the layers of a group read."""
        names = dict.fromkeys(name for pair in group for name in self.inputs[pair.tensor])
        return [self._by_name[name] for name in names]

    def _clean_session(self, group: Sequence[Pair]) -> Session:
        return Session(clean_layers(self.quantized, self._given(group), group)[0])

    def run(self, sample: Feed, *, close: bool = False) -> Iterator[Measured]:
        """Every pair of one sample, with the tensors of one group at a time in memory."""
        held: dict[str, Array] = {}
        streams = zip(self._float.run(sample), self._quantized.run(sample), strict=True)
        for at, (exact, given) in enumerate(streams):
            group, session = self.groups[at], self._layers[at]
            held |= {pair.tensor: array for pair, array in zip(group, exact, strict=True)}
            feed = dict(sample)
            feed |= {given_name(p): held[p.tensor] for p in self._given(group)}
            clean = session.run({name: feed[name] for name in session.input_names})
            parts = self._from_inputs(at, sample, held) if close else {}
            for pair, x, y, z in zip(group, exact, given, clean, strict=True):
                parts_of = {n: _unpadded(v, pair) for n, v in parts.get(pair.tensor, {}).items()}
                x, y, z = (_unpadded(v, pair) for v in (x, y, z))
                yield Measured(pair, x, y, z, parts_of)
            held = {name: array for name, array in held.items() if self._last.get(name, -1) > at}

    def _from_inputs(
        self, at: int, sample: Feed, held: Mapping[str, Array]
    ) -> dict[str, dict[str, Array]]:
        """What float layers make of rounded inputs, one input of each layer at a time."""
        group = self.groups[at]
        names = {pair.tensor: f"{pair.tensor}~given" for pair in self._given(group)}
        if at not in self._close:
            part = extract(self.model, names, [pair.tensor for pair in group])
            align_outputs(part, group)
            self._close[at] = Session(part)
        session = self._close[at]
        exact = {name: restored(held[name], self._by_name[name]) for name in names}
        found: dict[str, dict[str, Array]] = {pair.tensor: {} for pair in group}
        for rounded in _rounds([self.inputs[pair.tensor] for pair in group]):
            feed = dict(sample)
            for name, new_name in names.items():
                feed[new_name] = self._rounded(held, name) if name in rounded else exact[name]
            results = session.run({name: feed[name] for name in session.input_names})
            for pair, array in zip(group, results, strict=True):
                for name in rounded.intersection(self.inputs[pair.tensor]):
                    found[pair.tensor][name] = array
        return found

    def _rounded(self, held: Mapping[str, Array], name: str) -> Array:
        pair = self._by_name[name]
        array = held[name] if pair.grid is None else pair.grid.rounded(held[name])
        return restored(array, pair)


def fit(pair: Pair, exact: tuple[int, ...], given: tuple[int, ...]) -> Pair | None:
    """The pair with layout and padding that the shapes allow; None where they do not fit."""
    if len(exact) != len(given):
        return None
    evening = pair.evening
    if evening is not None and evening.factor.size != exact[evening.axis]:
        return None
    layouts = (pair.channels_last, not pair.channels_last) if len(exact) >= 3 else (False,)
    for last in layouts:
        same = (given[0], given[-1], *given[1:-1]) if last else given
        others = exact[:1] + exact[2:] == same[:1] + same[2:]
        if same == exact:
            return replace(pair, channels_last=last)
        if len(exact) >= 3 and others and same[1] > exact[1]:
            return replace(pair, channels_last=last, padding=same[1] - exact[1])
    return None


def _unpadded(array: Array, pair: Pair) -> Array:
    """Without the channels that only the quantized graph has; what is in them means nothing."""
    if not pair.padding:
        return array
    axis = -1 if pair.channels_last else 1
    return np.take(array, range(array.shape[axis] - pair.padding), axis)


RESCALED = 10.0
"""A factor that leaves a tenth of the difference is a factor that a pass took out."""


def _gain(pair: Pair, exact: Array, given: Array) -> float | None:
    """The factor by which the quantized tensor is another quantity; None where it is the same."""
    real = given.astype(np.float32)
    if pair.grid is not None:
        real = (real - pair.grid.zero_point) * np.float32(pair.grid.scale)
    x = np.clip(exact, *pair.needed).astype(np.float64).reshape(-1)
    y = restored(real, pair).astype(np.float64).reshape(-1)
    power = float(x @ x)
    if not np.isfinite(power) or power == 0:
        return None
    gain = float(x @ y) / power
    before, after = float(np.sum((y - x) ** 2)), float(np.sum((y - gain * x) ** 2))
    return gain if after * RESCALED < before and not 0.8 < gain < 1.25 else None


def _sizes(model: ir.Model, sample: Feed) -> dict[str, int]:
    """Number of elements of the values whose shape can be told."""
    known = {name: array.shape for name, array in sample.items() if hasattr(array, "shape")}
    return {name: math.prod(shape) for name, shape in shapes_for(model, known).items()}


def _grouped(pairs: Sequence[Pair], sizes: Mapping[str, int], group_bytes: int) -> list[list[Pair]]:
    """Neighbours together, as many as fit: float values, codes, and codes made cleanly."""
    groups: list[list[Pair]] = [[]]
    room = group_bytes
    for pair in pairs:
        width = 4 if pair.grid is None else pair.grid.dtype.itemsize
        size = sizes.get(pair.tensor, UNKNOWN_BYTES // 4) * (4 + 2 * width)
        if size > room and groups[-1]:
            groups.append([])
            room = group_bytes
        groups[-1].append(pair)
        room -= size
    return groups


def _rounds(layers: Sequence[Sequence[str]]) -> list[set[str]]:
    """Sets of tensors of which no layer reads two, so that each set can be rounded in one run."""
    together = nx.Graph()
    for inputs in layers:
        together.add_nodes_from(inputs)
        together.add_edges_from((a, b) for a in inputs for b in inputs if a != b)
    found: dict[int, set[str]] = {}
    for name, color in nx.greedy_color(together).items():
        found.setdefault(color, set()).add(name)
    return list(found.values())
