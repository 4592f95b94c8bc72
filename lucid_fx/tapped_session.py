"""A session for small models with observers in them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir as ir

from lucid_fx.errors import ModelError
from lucid_fx.ir.serde import weight_bytes
from lucid_fx.ir.walk import is_op, nodes
from lucid_fx.passes.tap_blocked_layout import TapBlockedLayout
from lucid_fx.runtime.session import Session

MOST_WEIGHTS = 16 * 2**20
"""Bytes of weights up to which opening a model twice takes little time and memory."""


def open_tapped(model: ir.Model) -> Session:
    """A session of one thread whose observers read results of Convs as onnxruntime keeps them.

    It puts a copy into the usual layout in front of every observer, which can take as long as the
    observer itself. So the graph that it made is looked at, these are dropped, and it is opened
    once more as it is then.

    Args:
        model: with taps in it.
    """
    convolves = any(is_op(node, "Conv") for node in nodes(model))
    if not convolves or weight_bytes(model) > MOST_WEIGHTS:
        return Session(model, threads=1)
    with tempfile.TemporaryDirectory(prefix="lucid_fx.") as folder:
        path = Path(folder) / "optimised.onnx"
        usual: Session | None = Session(model, threads=1, optimized_path=path)
        optimised = ir.load(path)
        if not TapBlockedLayout().run(optimised):
            assert usual is not None
            return usual
        usual = None  # its memory, before the next takes its own
        try:
            return Session(optimised, threads=1, optimize=False)
        except ModelError:  # not every graph that onnxruntime writes can it read again
            return Session(model, threads=1)
