"""ONNX's own node models, each quantized with its own inputs: what became of one.

``python tests/end_to_end/node_suite.py [--codes] [PART OF A NAME …]`` prints outcomes and counts;
``--codes`` puts on codes all that has a kernel, whether it gains or not.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir
import onnxruntime as ort
from numpy.typing import NDArray
from onnx.backend.test.case.node import collect_testcases

import lucid_fx
from lucid_fx.errors import LucidFxError
from lucid_fx.ops import table
from lucid_fx.passes import choose_integer_regions as regions
from lucid_fx.runtime.session import Session

LEAST_SQNR = 15.0

RANDOM_OPS = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli", "Dropout",
})  # fmt: skip
"""Ops that draw numbers (Dropout in training mode): two runs of one model differ already."""

DEFECTS = ("defect", "\n", "onnxruntime does not take", "onnxruntime failed")
"""In an error text: not a refusal of the model, but something that we did to it."""

Format = Literal["qoperator", "qdq"]
FORMATS: tuple[Format, ...] = ("qoperator", "qdq")

Fate = Literal["not run by onnxruntime", "quantized", "passed through", "refused", "failed"]


@dataclass(frozen=True)
class Outcome:
    """What became of one model in one format; ``text`` says why, or what went wrong."""

    name: str
    fate: Fate
    text: str = ""


@contextmanager
def everything_on_codes() -> Iterator[None]:
    """Let every op with a kernel gain from codes, so that all rows of the op table are used."""
    names = ("ROUNDING_PRICE", "QUANTIZE_PRICE", "DEQUANTIZE_PRICE", "RELAYOUT_PRICE")
    prices, rows = {name: getattr(regions, name) for name in names}, dict(table._BY_NAME)
    for name in names:
        setattr(regions, name, 0.0)
    for key, row in rows.items():
        table._BY_NAME[key] = dataclasses.replace(row, float_price=1000.0)
    try:
        yield
    finally:
        table._BY_NAME.update(rows)
        for name, price in prices.items():
            setattr(regions, name, price)


@functools.cache
def all_cases() -> list[Any]:
    """Every node model with inputs, in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in collect_testcases(None) if case.data_sets]


def has_kernel(case: Any) -> bool:
    """Whether the model holds an op that can be on codes; all others come out as they are."""
    ops = {op_type for (_, op_type), row in table._BY_NAME.items() if row.lower is not None}
    texts = onnx.printer.to_text(case.model.graph)
    return any(f" {op} " in texts for op in (*ops, "LSTM"))


def outcome(case: Any, format: Format = "qoperator") -> Outcome:
    """Quantize one model and compare it with its float self."""
    feed = feed_of(case)
    try:
        wanted = _interface(case.model), _run(case.model, feed)
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
    complaint = _complaint(case, quantized.to_proto(), feed, *wanted)
    if complaint is not None:
        return Outcome(case.name, "failed", complaint)
    entries = list(quantized.ledger)
    fate = "quantized" if any(e.status == "quantized" for e in entries) else "passed through"
    return Outcome(case.name, fate, "; ".join(f"{e.op_type}: {e.reason}" for e in entries))


def _complaint(
    case: Any, proto: onnx.ModelProto, feed: dict[str, Any], interface: Interface, wanted: list[Any]
) -> str | None:
    """What is wrong with a quantized model, None if nothing is."""
    try:
        if (found := _interface(proto)) != interface:
            return f"interface {found} instead of {interface}"
        given = _run(proto, feed)
    except Exception as error:
        return f"onnxruntime: {_first_line(error)}"
    if RANDOM_OPS.intersection(node.op_type for node in case.model.graph.node):
        return None
    for (name, *_), old, new in zip(interface[1], wanted, given, strict=True):
        complaint = difference(old, new)
        if complaint is not None:
            return f"output {name}: {complaint}"
    return None


def feed_of(case: Any) -> dict[str, Any]:
    """The inputs of the first data set by name."""
    inputs, _ = case.data_sets[0]
    given = list(case.model.graph.input)
    return {info.name: _array(value) for info, value in zip(given, inputs, strict=False)}


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


Interface = tuple[list[tuple[str, str]], list[tuple[str, str, str]]]


def _interface(model: onnx.ModelProto) -> Interface:
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
        return next((t for a, b in zip(old, new, strict=True) if (t := difference(a, b))), None)
    if isinstance(old, dict):
        return None if old == new else "maps differ"
    return _array_difference(np.asarray(old), np.asarray(new))


def _array_difference(a: NDArray[Any], b: NDArray[Any]) -> str | None:
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
    same = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    if not same or not np.isfinite(b[finite]).all():
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
    every = [c for c in all_cases() if not parts or any(part in c.name for part in parts)]
    for format in FORMATS:
        for case in every:
            found = outcome(case, format)
            counts[f"{format}: {found.fate}"] += 1
            if parts or found.fate in ("refused", "failed"):
                print(f"{format:9} {found.name:60} {found.fate}: {found.text}", flush=True)
    for what, count in sorted(counts.items()):
        print(f"{count:5d} {what}")


if __name__ == "__main__":
    with everything_on_codes() if "--codes" in sys.argv else nullcontext():
        main([part for part in sys.argv[1:] if part != "--codes"])
