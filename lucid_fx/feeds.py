"""Samples for a graph: its inputs by name, checked once for what they must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.errors import DataError
from lucid_fx.ir.naming import near_matches

Feed = dict[str, NDArray[Any]]


class GraphInputs:
    """What a graph takes, as it is now.

    Args:
        graph: its inputs are read, and no more.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self._inputs = {value.name or "": _GraphInput(value) for value in graph.inputs}

    def feed(self, args: Any, kwargs: Mapping[str, Any] | None = None) -> Feed:
        """Check a sample and give it as name → array; see `GraphModule.feed`."""
        if isinstance(args, Mapping):
            given = dict(args)
        elif isinstance(args, list | tuple):
            given = self._by_position(args)
        else:
            given = self._by_position((args,))
        if kwargs:
            given.update(kwargs)
        if given.keys() != self._inputs.keys():
            self._refuse(given)
        return {name: fitting(given[name]) for name, fitting in self._inputs.items()}

    def _by_position(self, args: Sequence[Any]) -> dict[str, Any]:
        if len(args) > len(self._inputs):
            raise DataError(
                f"{len(args)} arrays are given for {len(self._inputs)} inputs"
                f" ({', '.join(self._inputs)})"
            )
        return dict(zip(self._inputs, args, strict=False))

    def _refuse(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self._inputs:
                raise DataError(
                    f"the model has no input {name!r}", hint=near_matches(name, list(self._inputs))
                )
        missing = next(name for name in self._inputs if name not in given)
        raise DataError(f"no value is given for input {missing!r}")


class _GraphInput:
    """One input; called with what is given for it, gives its array."""

    def __init__(self, value: ir.Value) -> None:
        self._name = value.name
        self._is_tensor = value.type is None or isinstance(value.type, ir.TensorType)
        self._dtype = None if value.dtype is None else np.dtype(value.dtype.numpy())
        self._shape = None if value.shape is None else list(map(str, value.shape))
        self._rank = None if value.shape is None else len(value.shape)

    def __call__(self, given: Any) -> Any:
        """The array, with rank and dtype checked; Python numbers are converted.

        Sequences (lists of arrays), optional values and maps go to onnxruntime as they are.
        """
        if type(given) is np.ndarray and given.dtype == self._dtype and given.ndim == self._rank:
            return given
        return self._checked(given) if self._is_tensor else given

    def _checked(self, given: Any) -> Any:
        try:
            array = np.asarray(given, None if hasattr(given, "dtype") else self._dtype)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"input {self._name!r} takes an array, not what was given as"
                f" {type(given).__name__} ({error})",
                hint="a mapping of input names to arrays goes to run(), or is spread:"
                " model(**feed)",
            ) from None
        if self._dtype is not None and array.dtype != self._dtype:
            raise DataError(f"input {self._name!r} has dtype {array.dtype}, expected {self._dtype}")
        if self._rank is not None and array.ndim != self._rank:
            raise DataError(
                f"input {self._name!r} has rank {array.ndim} (shape {array.shape}),"
                f" expected rank {self._rank} (shape {self._shape})"
            )
        return array
