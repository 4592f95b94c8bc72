"""Writing models: whole or not at all, and weights one by one."""

from __future__ import annotations

import functools
import itertools
import os
import re
import tempfile
from pathlib import Path

import onnx
import onnx_ir as ir

from lucid_fx.errors import ModelError
from lucid_fx.ir.derived import DerivedTensor, plain_errors, read, require_file, source_file
from lucid_fx.ir.serde import from_proto, tensors, weight_bytes
from lucid_fx.ir.walk import graphs

EXTERNAL_LIMIT = 32_000_000
"""Bytes of initializers above which a model is written with its data in a second file.

A protobuf is held in memory, and three times so while it is written: 100 MB at this limit, which is
little beside Python and onnxruntime themselves. Data in a file of its own is written tensor by
tensor, mapped, and used where it lies. Below, one file is handier.
"""

PAGE = 4096
"""Alignment of the tensors in a data file: that of memory mappings, and more than kernels want."""


def save_model(model: ir.Model, path: str | Path) -> None:
    """Write a model so that ``path`` holds either the old model or the whole new one.

    Past `EXTERNAL_LIMIT` the weights go, tensor by tensor, to a new file ``<path>.data``, or
    ``<path>.1.data`` and so on where that is taken. The data of a model that is replaced goes.

    Raises:
        ModelError: no such folder, a file that weights are read from is gone, or is ``path``.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ModelError(f"there is no folder {str(path.parent)!r} to write {path.name!r} to")
    for tensor in tensors(model):
        require_file(tensor)
    read_from = {source.resolve() for t in tensors(model) if (source := source_file(t)) is not None}
    if path.resolve() in read_from:
        raise ModelError(f"{str(path)!r} holds weights of this model", hint="give another path")
    drafts = tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.")
    with drafts as folder, plain_errors():
        draft = Path(folder) / path.name
        before = _data_files(path) - read_from
        if weight_bytes(model) > EXTERNAL_LIMIT:
            data = _free_name(path)
            ir.save(model, draft, external_data=data, alignment=PAGE, align_threshold=PAGE)
            os.replace(Path(folder) / data, path.with_name(data))
        else:
            ir.save(_in_memory(model), draft)
        os.replace(draft, path)
    for old in before:
        old.unlink(missing_ok=True)


def _free_name(path: Path) -> str:
    """A name for the data of ``path`` that no file has."""
    names = (
        f"{path.name}{number}.data"
        for number in itertools.chain([""], (f".{i}" for i in itertools.count(1)))
    )
    return next(name for name in names if not path.with_name(name).exists())


def _data_files(path: Path) -> set[Path]:
    """The data files of the model at ``path`` that `save_model` gave names to."""
    if not path.is_file():
        return set()
    try:
        old = from_proto(onnx.load(path, load_external_data=False))
    except Exception:
        return set()  # no model: it is replaced all the same
    named = {Path(t.location).name for t in tensors(old) if isinstance(t, ir.ExternalTensor)}
    ours = re.compile(re.escape(path.name) + r"(\.\d+)?\.data")
    return {path.with_name(name).resolve() for name in named if ours.fullmatch(name)}


def _in_memory(model: ir.Model) -> ir.Model:
    """A clone whose tensors are read from their files when it is serialized."""
    clone = model.clone()
    for graph in graphs(clone):
        for value in graph.initializers.values():
            if isinstance(tensor := value.const_value, ir.ExternalTensor):
                value.const_value = DerivedTensor(
                    functools.partial(read, tensor), tensor.dtype, tuple(tensor.shape.numpy()),
                    tensor, tensor.name,
                )  # fmt: skip
    return clone
