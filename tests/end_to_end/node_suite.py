"""ONNX's own node models, each quantized with its own inputs: what became of one.

``python tests/end_to_end/node_suite.py [PART OF A NAME …]`` prints the outcomes and their counts.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
import onnx_ir
from onnx.backend.test.case.node import collect_testcases

import lucid_fx
from lucid_fx.errors import LucidFxError
from lucid_fx.runtime.session import Session

LEAST_SQNR = 15.0

RANDOM_OPS = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli", "Dropout",
})  # fmt: skip
"""Ops that draw numbers (Dropout in training mode): two runs of one model differ already."""

DEFECTS = ("defect", "\n", "onnxruntime does not take", "onnxruntime failed")
"""In an error text: not a refusal of the model, but something that we did to it."""

Fate = Literal["not run by onnxruntime", "quantized", "passed through", "refused", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of one model in one format; ``text`` says why, or what went wrong."""

    name: str
    fate: Fate
    text: str = ""


@functools.cache
def all_cases() -> list[Any]:
    """Every node model with inputs, in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in collect_testcases(None) if case.data_sets]


def outcome(case: Any, format: Literal["qoperator", "qdq"] = "qoperator") -> Outcome:
    """Quantize one model and compare it with its float self."""
    feed = feed_of(case)
    try:
        names, wanted = _interface(case.model), _run(case.model, feed)
    except Exception as error:
        return Outcome(case.name, "not run by onnxruntime", _first_line(error))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lucid_fx.errors.LucidFxWarning)
            quantized = lucid_fx.quantize(case.model, [feed], format=format)
    except LucidFxError as error:
        text = str(error)
        fate: Fate = "failed" if any(mark in text for mark in DEFECTS) else "refused"
        return Outcome(case.name, fate, text)
    except Exception as error:
        return Outcome(case.name, "failed", f"{type(error).__name__}: {_first_line(error)}")
    entries = list(quantized.ledger)
    fate = "quantized" if any(e.status == "quantized" for e in entries) else "passed through"
    proto = quantized.to_proto()
    try:
        if (found := _interface(proto)) != names:
            return Outcome(case.name, "failed", f"interface {found} instead of {names}")
        given = _run(proto, feed)
    except Exception as error:
        return Outcome(case.name, "failed", f"onnxruntime: {_first_line(error)}")
    if not RANDOM_OPS.intersection(node.op_type for node in case.model.graph.node):
        for name, old, new in zip(names[1], wanted, given, strict=True):
            complaint = difference(old, new)
            if complaint is not None:
                return Outcome(case.name, "failed", f"output {name[0]}: {complaint}")
    return Outcome(case.name, fate, "; ".join(f"{e.op_type}: {e.reason}" for e in entries))


def feed_of(case: Any) -> dict[str, Any]:
    """The inputs of the first data set by name."""
    inputs, _ = case.data_sets[0]
    given = [value for value in case.model.graph.input]
    return {info.name: _array(value) for info, value in zip(given, inputs, strict=False)}


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _interface(model: onnx.ModelProto) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Names and types of the inputs; names, types and shapes of the outputs."""
    inputs = [(info.name, str(info.type)) for info in model.graph.input]
    session = _session(model)
    outputs = [(o.name, o.type, str(o.shape)) for o in session.get_outputs()]
    return inputs, outputs


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _run(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    return Session(onnx_ir.from_proto(model), threads=1).run(feed)


def difference(old: Any, new: Any) -> str | None:
    """What is wrong with a value, None if it is as good as the float one."""
    if old is None or new is None:
        return None if old is new else "one is missing"
    if isinstance(old, list):
        if not isinstance(new, list) or len(old) != len(new):
            return "a sequence of another length"
        found = (difference(a, b) for a, b in zip(old, new, strict=True))
        return next((text for text in found if text), None)
    if isinstance(old, dict):
        return None if old == new else "maps differ"
    a, b = np.asarray(old), np.asarray(new)
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
    if a.dtype.kind not in "fcV":
        return None if np.array_equal(a, b) else "values that are no reals differ"
    return _sqnr_complaint(a, b)


def _sqnr_complaint(a: NDArray[Any], b: NDArray[Any]) -> str | None:
    """Non-finite values must be the same; finite ones near each other."""
    kind = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(kind), b.astype(kind)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return "NaN or infinities differ"
    signal, noise = (float(np.sum(np.abs(x) ** 2)) for x in (a[finite], a[finite] - b[finite]))
    if noise <= 1e-12 * finite.sum():  # also where the float output is zero
        return None
    if signal == 0:
        return "not zero"
    sqnr = 10 * np.log10(signal / noise)
    return None if sqnr >= LEAST_SQNR else f"{sqnr:.1f} dB"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def main(parts: list[str]) -> None:
    """Print what became of the models whose names hold one of these parts, or of all."""
    counts: Counter[str] = Counter()
    for format in ("qoperator", "qdq"):
        for case in all_cases():
            if parts and not any(part in case.name for part in parts):
                continue
            found = outcome(case, format)  # type: ignore[arg-type]
            counts[f"{format}: {found.fate}"] += 1
            if parts or found.fate in ("refused", "failed"):
                print(f"{format:9} {found.name:60} {found.fate}: {found.text}", flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:5d} {what}")


if __name__ == "__main__":
    main(sys.argv[1:])
