"""A session for small models with observers in them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir as ir

from lucid_fx.errors import ModelError, NativeLibraryError
from lucid_fx.ir.serde import weight_bytes
from lucid_fx.ir.walk import is_op, nodes
from lucid_fx.native.lanes import LaneSession
from lucid_fx.native.library import NativeLibrary
from lucid_fx.passes.tap_blocked_layout import TapBlockedLayout
from lucid_fx.runtime.session import Session, load_into_onnxruntime, model_source

MOST_WEIGHTS = 16 * 2**20
"""Bytes of weights up to which opening a model twice takes little time and memory."""


def open_tapped(library: NativeLibrary, model: ir.Model) -> LaneSession:
    """A session whose observers read results of Convs as onnxruntime keeps them.

    It puts a copy into the usual layout in front of every observer, which can take as long as the
    observer itself. So the graph that it made is looked at, these are dropped, and it is opened
    once more as it is then.

    Args:
        library: the native library.
        model: with taps in it.

    Raises:
        ModelError: onnxruntime does not take the model.
    """
    convolves = any(is_op(node, "Conv") for node in nodes(model))
    if convolves and weight_bytes(model) <= MOST_WEIGHTS:
        optimised = _optimised(model)
        if TapBlockedLayout().run(optimised):
            try:
                return _opened(library, optimised, optimize=False)
            except ModelError:  # not every graph that onnxruntime writes can it read again
                pass
    return _opened(library, model)


def _optimised(model: ir.Model) -> ir.Model:
    with tempfile.TemporaryDirectory(prefix="lucid_fx.") as folder:
        path = Path(folder) / "optimised.onnx"
        Session(model, threads=1, optimized_path=path)
        return ir.load(path)


def _opened(library: NativeLibrary, model: ir.Model, *, optimize: bool = True) -> LaneSession:
    load_into_onnxruntime(library.path)
    output = model.graph.outputs[0].name or ""
    try:
        with model_source(model) as (source, settings):
            return LaneSession(library, source, output, settings=settings, optimize=optimize)
    except NativeLibraryError as error:
        raise ModelError(f"onnxruntime does not take the model: {error}") from error
