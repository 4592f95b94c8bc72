"""Sessions of models with observers in them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir as ir

from lucid_fx.errors import ModelError
from lucid_fx.ir.serde import weight_bytes
from lucid_fx.ir.walk import is_op, nodes
from lucid_fx.passes.tap_blocked_layout import TapBlockedLayout
from lucid_fx.runtime.session import Session

MOST_WEIGHTS = 256 * 2**20
"""Bytes of weights up to which a second look at the graph costs less than it saves."""


def open_tapped(model: ir.Model, *, threads: int = 0) -> Session:
    """A session whose observers read the results of Convs as onnxruntime keeps them.

    It puts a copy into the usual layout in front of every observer, which takes as long as the
    observer or longer. So the graph that it made is looked at once, these are dropped, and it is
    opened as it is then.

    Args:
        model: with taps in it.
        threads: intra-op threads, 0 for onnxruntime's choice.
    """
    convolves = any(is_op(node, "Conv") for node in nodes(model))
    if not convolves or weight_bytes(model) > MOST_WEIGHTS:
        return Session(model, threads=threads)
    with tempfile.TemporaryDirectory(prefix="lucid_fx.") as folder:
        path = Path(folder) / "optimised.onnx"
        usual: Session | None = Session(model, threads=threads, optimized_path=path)
        optimised = ir.load(path)
        if not TapBlockedLayout().run(optimised):
            assert usual is not None
            return usual
        usual = None  # its memory, before the next takes its own
        try:
            return Session(optimised, threads=threads, optimize=False)
        except ModelError:  # not every graph that onnxruntime writes can it read again
            return Session(model, threads=threads)
