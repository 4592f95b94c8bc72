"""Runs a float model, a quantized one and its layers on clean inputs, side by side."""

from __future__ import annotations

import itertools
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import networkx as nx
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.feeds import Feed
from lucid_fx.ir.aligning import align_outputs, clean_layers, given_name, restored
from lucid_fx.ir.extraction import computed, extract
from lucid_fx.ir.pairing import Pair, layer_inputs, pair_tensors
from lucid_fx.ir.serde import shapes_for
from lucid_fx.ir.walk import is_op, only_consumer, scalar
from lucid_fx.ops.table import needed_range
from lucid_fx.runtime.ahead import ahead
from lucid_fx.runtime.segmented import SegmentedModel
from lucid_fx.runtime.session import Session
from lucid_fx.tensor_parts import GLANCED, fit, gain_of, is_alike, parts_of, unpadded

Array = NDArray[Any]

GROUP_BYTES = 24 * 2**20
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
            its grid.
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
        names = [[pair.tensor for pair in group] for group in groups]
        codes = [[pair.codes for pair in group] for group in groups]
        # they run side by side
        half = max(1, (os.cpu_count() or 1) // 2)
        self._plain = SegmentedModel(model, names, threads=half)
        self._quantized = SegmentedModel(quantized, codes, threads=half)
        self._kept = list(self._first_look(groups, sample))
        self.groups = [[pair for pair, _ in filter(None, kept)] for kept in self._kept]
        self.pairs = [pair for group in self.groups for pair in group]
        self.inputs = layer_inputs(quantized, self.pairs)
        self._by_name = {pair.tensor: pair for pair in self.pairs}
        self._aligned = SegmentedModel(
            model,
            [[pair.tensor for pair in group] for group in self.groups],
            lambda part, at: align_outputs(part, self.groups[at]),
        )
        self._layers = [self._clean_session(group) for group in self.groups]
        self._outputs = {value.name for value in model.graph.outputs}
        self._close: dict[int, Session] = {}
        self._last = {
            name: at
            for at, group in enumerate(self.groups)
            for pair in group
            for name in (pair.tensor, *self.inputs[pair.tensor])
        }

    def _first_look(
        self, groups: Sequence[Sequence[Pair]], sample: Feed
    ) -> Iterator[list[tuple[Pair, float] | None]]:
        """The pairs that hold, None for others: shapes fit, and provenance means the same tensor.

        With each pair comes the factor between the tensor that was found and that of the pair.
        """
        values = computed(self.model)
        inputs = layer_inputs(self.quantized, [pair for group in groups for pair in group])
        alike: dict[str, bool] = {}
        streams = zip(self._plain.run(sample), self._quantized.run(sample), strict=True)
        for group, (exact, given) in zip(groups, streams, strict=True):
            kept = []
            for pair, x, y in zip(group, exact, given, strict=True):
                # behind a tensor that is far off, a factor is no sign of a pass
                sure = not pair.named and all(alike.get(n, True) for n in inputs[pair.tensor])
                kept.append(self._holds(pair, values, x, y, sure))
                held = kept[-1]
                alike[pair.tensor] = held is None or is_alike(*held, x, y)
            yield kept

    def _holds(
        self, pair: Pair, values: Mapping[str, ir.Value], exact: Array, given: Array, sure: bool
    ) -> tuple[Pair, float] | None:
        fitted = fit(pair, exact.shape, given.shape)
        if fitted is None:
            self.unmatched[pair.tensor] = (
                f"shape {list(exact.shape)} in the float model, {list(given.shape)} in the"
                " quantized one"
            )
            return None
        gain = gain_of(fitted, exact, given) if sure else None
        if gain is None:
            return fitted, 1.0
        moved = self._behind_factor(fitted, values, gain)
        if moved is None:
            self.unmatched[pair.tensor] = f"a pass rescaled it by {gain:.4g}"
        return moved

    def _behind_factor(
        self, pair: Pair, values: Mapping[str, ir.Value], gain: float
    ) -> tuple[Pair, float] | None:
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
        name = output.name or ""
        moved = replace(
            pair,
            tensor=name,
            node=reader.name or "",
            op_type=reader.op_type,
            needed=self.needed[name],
        )
        return moved, factor

    def _given(self, group: Sequence[Pair]) -> list[Pair]:
        """The tensors that the layers of a group read."""
        names = dict.fromkeys(name for pair in group for name in self.inputs[pair.tensor])
        return [self._by_name[name] for name in names]

    def _clean_session(self, group: Sequence[Pair]) -> Session:
        return Session(clean_layers(self.quantized, self._given(group), group)[0], in_turns=True)

    def glances(
        self, samples: Iterable[Feed]
    ) -> Iterator[Iterator[tuple[Pair, Array, Array, float]]]:
        """Parts of every pair, evenly spread, and graph outputs whole.

        Costs little more than a plain run of both models: a thread of its own runs the float model
        and takes the samples, one stretch ahead.

        Yields:
            for each sample, to be used before the next: pairs, each with float values, codes, and
            how many elements of the tensor each of them stands for.
        """
        feeds: deque[Feed] = deque()
        exact = ahead(self._stretches(samples, feeds))
        for first in exact:
            yield self._glance(itertools.chain([first], exact), feeds.popleft())

    def _stretches(self, samples: Iterable[Feed], feeds: deque[Feed]) -> Iterator[list[Array]]:
        for sample in samples:
            feeds.append(sample)
            yield from self._plain.run(sample)

    def _glance(
        self, exact: Iterator[list[Array]], sample: Feed
    ) -> Iterator[tuple[Pair, Array, Array, float]]:
        for kept, given in zip(self._kept, self._quantized.run(sample), strict=True):
            for found, x, y in zip(kept, next(exact), given, strict=True):
                if found is None:
                    continue
                most = math.inf if found[0].tensor in self._outputs else GLANCED
                part, codes = parts_of(*found, x, y, most)
                yield found[0], part, codes, x.size / max(part.size, 1)

    def run(self, sample: Feed) -> Iterator[Measured]:
        """Every pair of one sample, whole, with one group of tensors at a time in memory."""
        held: dict[str, Array] = {}
        streams = zip(self._aligned.run(sample), self._quantized.run(sample), strict=True)
        for at, (exact, every) in enumerate(streams):
            group, session = self.groups[at], self._layers[at]
            given = [y for y, found in zip(every, self._kept[at], strict=True) if found is not None]
            held |= {pair.tensor: array for pair, array in zip(group, exact, strict=True)}
            feed = dict(sample)
            feed |= {given_name(p): held[p.tensor] for p in self._given(group)}
            clean = session.run({name: feed[name] for name in session.input_names})
            parts = self._from_inputs(at, sample, held)
            for pair, x, y, z in zip(group, exact, given, clean, strict=True):
                alone = {n: unpadded(v, pair) for n, v in parts[pair.tensor].items()}
                x, y, z = (unpadded(v, pair) for v in (x, y, z))
                yield Measured(pair, x, y, z, alone)
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
            self._close[at] = Session(part, in_turns=True)
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
