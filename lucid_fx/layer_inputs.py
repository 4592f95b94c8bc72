"""The second moments of what flows into layers, gathered while samples run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.feeds import Feed
from lucid_fx.graph_module import clone_model
from lucid_fx.native.library import NativeLibrary, load
from lucid_fx.native.observers import NativeObservers
from lucid_fx.passes.eliminate_dead import EliminateDead
from lucid_fx.passes.insert_observers import InsertObservers
from lucid_fx.passes.pipeline import run_pipeline
from lucid_fx.quantization.weight_only import GramObserver
from lucid_fx.runtime.session import Session

_IDS = itertools.count()

Grams = dict[str, NDArray[np.float64]]


def gram_matrices(
    model: ir.Model, columns: Mapping[str, int], samples: Iterable[Feed]
) -> Grams:  # fmt: skip
    """X^T X over the last axis of values, on all samples.

    Only what the values need is run. Memory is one float64 matrix for each value.

    Args:
        model: not changed.
        columns: value name → size of its last axis.
        samples: by graph input.

    Returns:
        By value, float64 ``[columns, columns]``; none for values in bodies where the native library
        is not installed.
    """
    twin = clone_model(model)
    outside = {v.name: v for v in (*twin.graph.inputs, *(v for n in twin.graph for v in n.outputs))}
    if all(name in outside for name in columns):
        twin.graph.outputs.clear()
        twin.graph.outputs.extend(outside[name] for name in columns)
        run_pipeline(twin, (EliminateDead(),))
    library = load()
    if library is not None:
        return _native(twin, library, columns, samples)
    return _python(twin, [name for name in columns if name in outside], samples)


def _native(
    model: ir.Model, library: NativeLibrary, columns: Mapping[str, int], samples: Iterable[Feed]
) -> Grams:
    observers, prefix = NativeObservers(library), f"gram{next(_IDS)}/"
    taps = {name: {"key": prefix + name, "kind": "gram"} for name in columns}
    run_pipeline(model, (InsertObservers(taps),))
    session = Session(model)
    for sample in samples:
        session.run(_needed(sample, session))
    seen = {name: observers.state(prefix + name) is not None for name in columns}
    found = {
        name: observers.gram(prefix + name, k) if seen[name] else np.zeros((k, k))
        for name, k in columns.items()
    }
    observers.reset(prefix)
    return found


def _python(model: ir.Model, names: list[str], samples: Iterable[Feed]) -> Grams:
    if not names:
        return {}
    session, observers = Session(model), {name: GramObserver() for name in names}
    for sample in samples:
        for name, array in zip(names, session.run(_needed(sample, session), names), strict=True):
            observers[name].forward(array)
    return {name: observer.gram for name, observer in observers.items()}


def _needed(sample: Feed, session: Session) -> dict[str, Any]:
    return {name: sample[name] for name in session.input_names}
