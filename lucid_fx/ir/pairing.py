"""Which tensor of a quantized graph stands for which tensor of the float graph it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from lucid_fx.ir.evening import Evening, evened
from lucid_fx.ir.extraction import computed, reads
from lucid_fx.ir.grids import CodeGrid, code_grids
from lucid_fx.ir.provenance import PASS_KEY, origins
from lucid_fx.ir.walk import attribute, is_float, is_op, rank

CODE_SUFFIXES = ("_codes", "_quantized", "_QuantizeLinear_Output")
"""What quantizers put behind a tensor's name to name its codes."""


EVERYTHING = (-float("inf"), float("inf"))


@dataclass(frozen=True, eq=False)
class Pair:
    """A tensor of the float graph and the one that stands for it in the quantized graph.

    Attributes:
        tensor: name in the float graph.
        codes: name in the quantized graph.
        grid: of the codes; None where the quantized graph computes real values.
        node: the float node that makes it, "" for a graph input.
        op_type: of that node.
        quant_node: the node of the quantized graph that makes it.
        evening: what its channels were divided by.
        channels_last: the quantized graph has its channels on the last axis.
        padding: channels of zeros that the quantized graph has behind the others.
        needed: the range outside which no reader tells values apart.
        named: found by name; otherwise by provenance, which also holds of rescaled tensors.
    """

    tensor: str
    codes: str
    grid: CodeGrid | None
    node: str
    op_type: str
    quant_node: str
    evening: Evening | None = None
    channels_last: bool = False
    padding: int = 0
    needed: tuple[float, float] = EVERYTHING
    named: bool = True


def pair_tensors(model: ir.Model, quantized: ir.Model) -> list[Pair]:
    """Pairs in the order of the quantized graph, each float tensor once.

    A tensor is found by its name, by that of its codes, or by the last of the source nodes that its
    node stands for. Only tensors of the main graphs are looked at; a real value that is quantized
    at once is represented by its codes.
    """
    finder = _Finder(model, quantized)
    best: dict[str, tuple[int, Pair]] = {}
    for at, value in enumerate(computed(quantized).values()):
        pair = finder.find(value)
        if pair is not None:
            old = best.get(pair.tensor)
            # a name says more than provenance; of what a node became, the last part is its result
            if old is None or pair.named or not old[1].named:
                best[pair.tensor] = (at, pair)
    return [pair for _, pair in sorted(best.values(), key=lambda entry: entry[0])]


class _Finder:
    def __init__(self, model: ir.Model, quantized: ir.Model) -> None:
        self.floats = {n: v for n, v in computed(model).items() if is_float(v)}
        self.nodes = {node.name: (at, node) for at, node in enumerate(model.graph)}
        self.grids, self.factors = code_grids(quantized), evened(quantized)

    def find(self, value: ir.Value) -> Pair | None:
        """The pair of a value; None where the float graph has no such tensor."""
        producer, grid = value.producer(), self.grids.get(value.name or "")
        if grid is None and (_is_coded_at_once(value, self.grids) or not is_float(value)):
            return None
        if is_op(producer, "DequantizeLinear") or is_op(
            producer, "DequantizeLinear", domain="com.microsoft"
        ):
            return None
        for name in _names(value):
            if name in self.floats and not self._moved(producer):
                return self._pair(self.floats[name], value, grid, self.factors.get(("value", name)))
        source = self._source(producer)
        if source is None or producer is None or self._moved(producer) or _is_part(value):
            return None
        maker = source.producer()
        evening = self.factors.get(("node", "" if maker is None else maker.name or ""))
        pair = self._pair(source, value, grid, evening)
        return replace(pair, named=False)

    def _source(self, producer: ir.Node | None) -> ir.Value | None:
        """The output of the last source node that the producer stands for."""
        known = [self.nodes[n] for n in origins(producer) if n in self.nodes] if producer else []
        if not known:
            return None
        output: ir.Value = max(known, key=lambda entry: entry[0])[1].outputs[0]
        return output if output.name in self.floats else None

    def _moved(self, producer: ir.Node | None) -> bool:
        """Whether a pass put a Transpose here that the float graph does not have."""
        if producer is None or not is_op(producer, "Transpose"):
            return False
        if PASS_KEY not in producer.metadata_props:
            return False
        sources = [self.nodes[n][1] for n in origins(producer) if n in self.nodes]
        return not any(is_op(node, "Transpose") for node in sources)

    def _pair(
        self,
        source: ir.Value,
        value: ir.Value,
        grid: CodeGrid | None,
        evening: Evening | None,
    ) -> Pair:
        maker, producer = source.producer(), value.producer()
        last = producer is not None and _is_channels_last(producer, rank(source))
        return Pair(
            source.name or "",
            value.name or "",
            grid,
            "" if maker is None else maker.name or "",
            "input" if maker is None else maker.op_type,
            "" if producer is None else producer.name or "",
            evening,
            last,
        )


def _names(value: ir.Value) -> Iterator[str]:
    """Names that the float tensor may have."""
    producer, name = value.producer(), value.name or ""
    if producer is not None and producer.op_type == "QuantizeLinear":
        source = producer.inputs[0]
        if source is not None and source.name:
            yield source.name
    yield name
    yield from (name.removesuffix(s) for s in CODE_SUFFIXES if name.endswith(s))


def _is_coded_at_once(value: ir.Value, grids: Mapping[str, CodeGrid]) -> bool:
    return any(
        use.node.op_type == "QuantizeLinear" and use.node.outputs[0].name in grids
        for use in value.uses()
    )


def _is_part(value: ir.Value) -> bool:
    """Whether a reader stands for the same source node, so that this is not yet its result."""
    producer = value.producer()
    last = origins(producer)[-1:] if producer is not None else ()
    readers = [use.node for use in value.uses() if use.node.op_type not in _FORMS]
    return any(name in origins(reader) for name in last for reader in readers)


_FORMS = ("QuantizeLinear", "DequantizeLinear", "Transpose")
"""Ops that give the same tensor in another form."""


def _is_channels_last(node: ir.Node, dims: int | None) -> bool:
    if attribute(node, "channels_last", 0):
        return True
    turned = node.metadata_props.get(PASS_KEY) == "assign-channels-last"
    return turned and not is_op(node, "Transpose") and (dims or 0) >= 3


def layer_inputs(quantized: ir.Model, pairs: list[Pair]) -> dict[str, tuple[str, ...]]:
    """What each paired tensor is computed from: the nearest paired tensors in front of it.

    Returns:
        Float tensor name → float tensor names, in the order in which they are met.
    """
    values, by_codes = computed(quantized), {pair.codes: pair.tensor for pair in pairs}
    found: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        inputs: dict[str, None] = {}
        seen, stack = set[int](), [values[pair.codes].producer()]
        while stack:
            producer = stack.pop(0)
            if producer is None or id(producer) in seen:
                continue
            seen.add(id(producer))
            for value in reads(producer):
                if value.name in by_codes:
                    inputs[by_codes[value.name]] = None
                else:
                    stack.append(value.producer())
        found[pair.tensor] = tuple(inputs)
    return found
