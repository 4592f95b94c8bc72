"""compare(): where a quantized model loses accuracy, tensor by tensor and layer by layer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sized
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.comparison import Comparison, TensorRow
from lucid_fx.culprits import CloseLook, Evidence, find_culprits
from lucid_fx.errors import DataError, LucidFxError, ModelError
from lucid_fx.feeds import Feed
from lucid_fx.garbage import only_new_garbage
from lucid_fx.graph_module import GraphModule
from lucid_fx.ir.extraction import computed, reads
from lucid_fx.ir.grids import grid_values
from lucid_fx.ir.pairing import EVERYTHING, Pair
from lucid_fx.ir.walk import attribute, constant
from lucid_fx.ops.table import find_row, needed_range
from lucid_fx.paired_run import GROUP_BYTES, PairedRun
from lucid_fx.tensor_error import TensorError
from lucid_fx.tracing import trace
from lucid_fx.workflow import fuse

Progress = Callable[[int, int | None], None]

LOOK_BASE = 10
"""Samples 1, 10, 100 and so on are measured whole, with layers on clean inputs, and causes are
looked for in them. Of the others the graph outputs are measured whole, and about 8,192 elements of
every other tensor, evenly spread, each for all those that it stands for."""


@only_new_garbage()
def compare(
    model: Any,
    quantized: Any,
    data: Iterable[Any],
    *,
    top: int = 20,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
) -> Comparison:
    """Measure what each tensor and each layer of a quantized model lost against the float model.

    Both models run once for each sample, in stretches, so that memory depends neither on the number
    of samples nor on that of the tensors. Each layer also runs alone on the float model's tensors.

    Args:
        model, quantized: paths, protobufs or `GraphModule`; ours, or those of another quantizer.
        data: samples for the float model: arrays, tuples in input order, or mappings.
        top: how many culprits to look for.
        group_bytes: bytes of intermediate tensors held at a time, 24 MiB by default.
        progress: called after each sample.

    Raises:
        DataError: no samples, or one that does not fit the float model.
        ModelError: the models have unlike inputs, or no tensor is in both.
    """
    exact, coded = _module(model), _module(quantized)
    samples = iter(data)
    first = next(samples, None)
    if first is None:
        raise DataError("there are no samples to compare on", hint="give at least one")
    feed = exact.feed(first)
    _check_inputs(exact, coded)
    total = len(data) if isinstance(data, Sized) else None

    def tell(count: int) -> None:
        if progress is not None:
            progress(count, total)

    run = PairedRun(exact.model, coded.model, feed, group_bytes, _needed(exact))
    if not run.pairs:
        raise ModelError(
            "the two models have no tensor in common",
            hint="compare a float model with the quantized model that was made from it",
        )
    given = {pair.tensor: TensorError(pair.grid, _in_quantized_form(pair)) for pair in run.pairs}
    own = {pair.tensor: TensorError(pair.grid, _in_quantized_form(pair)) for pair in run.pairs}
    looks = {pair.tensor: CloseLook() for pair in run.pairs}
    count = 0
    numbered = enumerate(itertools.chain([first], samples), 1)
    for count, sample in numbered:
        _look(run, _feed(exact, sample, count), given, own, looks)
        tell(count)
        others = itertools.islice(numbered, (LOOK_BASE - 1) * count - 1)
        for parts in run.glances(_feed(exact, sample, at) for at, sample in others):
            for pair, part, codes, weight in parts:
                given[pair.tensor].add(part, codes, weight)
                given[pair.tensor].count(codes)
            count += 1
            tell(count)
    evidence = Evidence(
        {pair.tensor: pair for pair in run.pairs}, given, own, looks, run.inputs,
        _owners(exact.model, run), _weights(coded.model, run),
    )  # fmt: skip
    rows = [TensorRow.of(p, given[p.tensor], own[p.tensor]) for p in run.pairs]
    outputs = {name: given[name].sqnr_db for name in exact.output_names if name in given}
    return Comparison(rows, find_culprits(evidence, top), count, outputs, run.unmatched)


def _feed(exact: GraphModule, sample: Any, number: int) -> Feed:
    try:
        return exact.feed(sample)
    except DataError as error:
        raise DataError(f"sample {number - 1}: {error}") from None


Sums = dict[str, TensorError]


def _look(run: PairedRun, feed: Feed, given: Sums, own: Sums, looks: dict[str, CloseLook]) -> None:
    for seen in run.run(feed):
        name = seen.pair.tensor
        given[name].add(seen.exact, seen.given)
        given[name].count(seen.given)
        own[name].add(seen.exact, seen.clean)
        looks[name].add(seen)


def _in_quantized_form(pair: Pair) -> tuple[float, float]:
    """The range that matters, where the quantized graph holds values as the float graph does."""
    return EVERYTHING if pair.evening is not None else pair.needed


def _module(model: Any) -> GraphModule:
    if isinstance(model, GraphModule):
        return model
    return trace(str(model) if isinstance(model, Path) else model, allow_quantized=True)


def _needed(exact: GraphModule) -> dict[str, tuple[float, float]]:
    """Ranges that matter, as the fused ops know them: HardSwish is one op there, and four here."""
    try:
        fused = fuse(exact)
    except LucidFxError:
        return {}  # each op alone tells less, and never anything wrong
    return {name: needed_range(value) for name, value in computed(fused.model).items()}


def _check_inputs(exact: GraphModule, coded: GraphModule) -> None:
    missing = [name for name in coded.input_names if name not in exact.input_names]
    if missing:
        raise ModelError(
            f"the quantized model has an input {missing[0]!r} that the float model has not",
            hint="compare a float model with the quantized model that was made from it",
        )


def _owners(model: ir.Model, run: PairedRun) -> dict[str, tuple[str, str]]:
    """The node with weights between a tensor and those that its layer reads, else its maker."""
    values, stops = computed(model), {pair.tensor for pair in run.pairs}
    found = {}
    for pair in run.pairs:
        found[pair.tensor] = pair.node or pair.tensor, pair.op_type
        stack, seen = [values[pair.tensor].producer()], set[int]()
        while stack:
            node = stack.pop()
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            row = find_row(node)
            if row is not None and row.weight is not None:
                found[pair.tensor] = node.name or "", node.op_type
                break
            stack += [v.producer() for v in reads(node) if v.name not in stops]
    return found


def _weights(model: ir.Model, run: PairedRun) -> dict[str, tuple[NDArray[Any], bool]]:
    """Weight codes of each layer that has some, output channels first."""
    values, stops = computed(model), {pair.codes for pair in run.pairs}
    found = {}
    for pair in run.pairs:
        weight = _weight(values[pair.codes], stops)
        if weight is not None:
            found[pair.tensor] = weight
    return found


def _weight(value: ir.Value, stops: set[str]) -> tuple[NDArray[Any], bool] | None:
    """The largest constant on codes between a tensor and the tensors that its layer reads."""
    best: tuple[NDArray[Any], bool] | None = None
    stack, seen = [value.producer()], set[int]()
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        for tensor, scale, zero in grid_values(node):
            codes, steps = constant(tensor), constant(scale)
            if codes is None or steps is None or codes.ndim < 2 or codes.dtype.itemsize > 1:
                continue
            if best is None or codes.size > best[0].size:
                zeros = constant(zero)
                plain = codes.astype(np.int32) - (0 if zeros is None else int(zeros.flat[0]))
                best = _outputs_first(node, tensor, plain), steps.size > 1
        stack += [v.producer() for v in reads(node) if v.name not in stops]
    return best


def _outputs_first(node: ir.Node, tensor: ir.Value | None, codes: NDArray[Any]) -> NDArray[Any]:
    """Codes of a weight with the axis of output channels in front."""
    reader = node
    if node.op_type == "DequantizeLinear":
        reader = next((use.node for use in node.outputs[0].uses()), node)
    linear = "MatMul" in reader.op_type or "Gemm" in reader.op_type
    turned = linear and codes.ndim == 2 and not attribute(reader, "transB", 0)
    return codes.T if turned else codes
