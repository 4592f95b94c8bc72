"""Tensors that are computed from others when they are read, and reading those from their files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.errors import LucidFxError, ModelError


class DerivedTensor(ir.LazyTensor):
    """A tensor of known type and shape, computed whenever it is read, and not kept.

    Args:
        compute: gives the array.
        dtype, shape: of the array.
        source: the tensor that it is computed from.
        name: the tensor's name.
    """

    def __init__(
        self,
        compute: Callable[[], NDArray[Any]],
        dtype: ir.DataType,
        shape: tuple[int, ...],
        source: ir.TensorProtocol,
        name: str,
    ) -> None:
        super().__init__(lambda: ir.tensor(compute()), dtype, ir.Shape(shape), name=name)
        self.source = source


class Together:
    """Arrays that one computation gives all at once, and that are read one by one.

    What is left of a computation is kept until it is read, or until the next one starts, so that
    memory holds the arrays of one computation at most.
    """

    def __init__(self) -> None:
        self._key: object = None
        self._left: dict[str, NDArray[Any]] = {}

    def take(
        self, key: object, name: str, compute: Callable[[], Mapping[str, NDArray[Any]]]
    ) -> NDArray[Any]:
        """The array ``name`` of the computation ``key``; computes where it is not there."""
        if self._key != key or name not in self._left:
            self._left = {}  # before, so that two are never there together
            self._key, self._left = key, dict(compute())
        return self._left.pop(name)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let the error of a computation through as it is, out of what onnx_ir wraps around it."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, LucidFxError):
            cause = cause.__cause__
        if cause is None or cause is error:
            raise
        raise cause from None


def source_file(tensor: ir.TensorProtocol | None) -> Path | None:
    """The file that a tensor is read from, None where it is in memory."""
    while isinstance(tensor, DerivedTensor):
        tensor = tensor.source
    return Path(tensor.path) if isinstance(tensor, ir.ExternalTensor) else None


def read(tensor: ir.TensorProtocol) -> NDArray[Any]:
    """The array of a tensor; one in a file is mapped anew, and unmapped with the array.

    Raises:
        ModelError: the file is gone, or shorter than it was.
    """
    if not isinstance(tensor, ir.ExternalTensor):
        return np.asarray(tensor.numpy())
    require_file(tensor)
    mapped = ir.ExternalTensor(
        tensor.location, tensor.offset, tensor.length, tensor.dtype,
        shape=ir.Shape(tensor.shape), name=tensor.name, base_dir=tensor.base_dir,
    )  # fmt: skip
    try:
        return np.asarray(mapped.numpy())
    except (ValueError, OSError) as error:
        raise ModelError(
            f"the external data {str(tensor.path)!r} cannot be read ({error})", tensor=tensor.name
        ) from error


def require_file(tensor: ir.TensorProtocol) -> None:
    """Refuse a tensor whose file is not there.

    Raises:
        ModelError: with the file's and the tensor's name.
    """
    path = source_file(tensor)
    if path is not None and not path.is_file():
        raise ModelError(
            f"the external data {str(path)!r} is missing", tensor=tensor.name,
            hint="weights are read when they are needed: keep the file until the model is saved",
        )  # fmt: skip
