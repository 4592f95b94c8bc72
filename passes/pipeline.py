"""What a pass is, and running a list of them with verification after each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from lucid_fx.errors import LucidFxError, VerifyError
from lucid_fx.ir.verify import verify

After = Callable[["GraphPass", ir.Model, bool], None]
"""Called after each pass with the pass, the model, and whether it changed anything."""


_WATCHERS: ContextVar[tuple[After, ...]] = ContextVar("watchers", default=())


@contextmanager
def watching(after: After) -> Iterator[None]:
    """Call ``after`` behind every pass of every pipeline that runs meanwhile."""
    token = _WATCHERS.set((*_WATCHERS.get(), after))
    try:
        yield
    finally:
        _WATCHERS.reset(token)


@dataclass(frozen=True)
class GraphPass(ir.passes.InPlacePass):
    """A rewrite of a whole model; a frozen dataclass whose fields are its options."""

    completed_by: ClassVar[str] = ""
    """The pass that must follow before the model gives the right numbers; "" for none."""

    @property
    def name(self) -> str:
        """The pass's name on the command line: ``FuseConvBatchNorm`` → ``fuse-conv-batch-norm``."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(self).__name__).lower()

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place; whether anything changed."""
        raise NotImplementedError

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """`run` as onnx_ir's pass manager wants it."""
        return ir.passes.PassResult(model, self.run(model))


def run_pipeline(
    model: ir.Model, passes: Sequence[GraphPass], after: After | None = None
) -> ir.Model:
    """Run passes in order and verify the model after each.

    Raises:
        LucidFxError: from a pass, with the passes that had already run.
    """
    done: list[str] = []
    for graph_pass in passes:
        try:
            outputs = [(value.name, value.type, value.shape) for value in model.graph.outputs]
            changed = graph_pass.run(model)
            _keep_outputs(model, outputs)
            verify(model, graph_pass.name)
        except LucidFxError:
            raise
        except Exception as error:
            raise VerifyError(
                f"the pass failed with {type(error).__name__}: {error}",
                pass_name=graph_pass.name,
                hint=f"passes already run: {', '.join(done) or 'none'}; please report this defect",
            ) from error
        done.append(graph_pass.name)
        for watcher in (*_WATCHERS.get(), *([after] if after is not None else [])):
            watcher(graph_pass, model, changed)
    return model


def _keep_outputs(
    model: ir.Model, before: list[tuple[str | None, ir.TypeProtocol | None, ir.Shape | None]]
) -> None:
    """Outputs that a pass put in place of others have the names, types and shapes of those."""
    for value, (name, kind, shape) in zip(model.graph.outputs, before, strict=False):
        if value.name != name:
            raise VerifyError(f"graph output {name!r} is now {value.name!r}")
        value.type = kind if kind is not None else value.type
        value.shape = shape if shape is not None else value.shape
    if len(model.graph.outputs) < len(before):
        raise VerifyError("a graph output is gone")
