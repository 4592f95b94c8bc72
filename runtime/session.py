"""onnxruntime sessions with fixed options; the only product file that imports onnxruntime."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from lucid_fx.errors import LucidFxError, ModelError
from lucid_fx.ir.saving import save_model
from lucid_fx.ir.serde import INLINE_LIMIT, external_folder, inline_bytes, model_bytes
from lucid_fx.native.library import library_path

NATIVE_DOMAIN = "lucid_fx"
"""Operator domain of our own native library."""

MAX_OPSET, MAX_IR_VERSION = 28, 14
"""What onnxruntime 1.32 accepts; an older one refuses at load, with its own text."""


class Session:
    """A model loaded in onnxruntime.

    Args:
        model: the model, bodies and external data included.
        threads: intra-op threads, 0 for onnxruntime's choice.
        providers: execution providers, best first.
        optimize: False turns graph optimisation off.
        in_turns: one of many sessions that run in turns: they share a pool of memory, and their
            threads do not wait in loops.
        optimized_path: where to dump the graph that onnxruntime really runs.
        profile: where onnxruntime's profiler writes, as a prefix of its file; see `end_profiling`.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        threads: int = 0,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        optimize: bool = True,
        in_turns: bool = False,
        optimized_path: Path | None = None,
        profile: Path | None = None,
    ) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        if not optimize:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if in_turns:
            _register_shared_arena()
            options.add_session_config_entry("session.use_env_allocators", "1")
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if optimized_path is not None:
            options.optimized_model_filepath = str(optimized_path)
        if profile is not None:
            options.enable_profiling = True
            options.profile_file_prefix = str(profile)
        if NATIVE_DOMAIN in model.graph.opset_imports:
            options.register_custom_ops_library(str(_required_library()))
        self._session = _open(model, options, list(providers))
        self.input_names = [value.name for value in self._session.get_inputs()]
        self.output_names = [value.name for value in self._session.get_outputs()]
        self._exotic_outputs = any(
            value.type.startswith(_EXOTIC_TYPES) for value in self._session.get_outputs()
        )

    def run(self, feed: dict[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> list[Any]:
        """Run once.

        Args:
            feed: arrays by graph input.
            outputs: which graph outputs, None for all in order.

        Raises:
            ModelError: onnxruntime failed, with its first line.
        """
        try:
            if any(_is_exotic(array) for array in feed.values()) or self._exotic_outputs:
                return self._run_values(feed, outputs)
            return list(self._session.run(outputs, feed))
        except Exception as error:
            raise ModelError(f"onnxruntime failed to run the model: {_reason(error)}") from error

    def end_profiling(self) -> Path:
        """Stop the profiler; the file that it wrote."""
        return Path(self._session.end_profiling())

    def _run_values(self, feed: dict[str, Any], outputs: Sequence[str] | None) -> list[Any]:
        """Run with element types that numpy itself does not have (bfloat16, float8)."""
        values = {name: _to_value(array) for name, array in feed.items()}
        names = self.output_names if outputs is None else list(outputs)
        return [_from_value(value) for value in self._session.run_with_ort_values(names, values)]


@functools.cache
def _register_shared_arena() -> None:
    information = ort.OrtMemoryInfo(
        "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
    )
    ort.create_and_register_allocator(information, None)


_EXOTIC_TYPES = ("tensor(bfloat16", "tensor(float8")
"""Types that onnxruntime's Python API takes and gives as raw memory only."""


def _is_exotic(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.isbuiltin == 2


def _to_value(array: Any) -> Any:
    array = np.asarray(array, order="C")
    if not _is_exotic(array):
        return ort.OrtValue.ortvalue_from_numpy(array)
    raw = array.view(np.uint8 if array.dtype.itemsize == 1 else np.uint16)
    kind = ir.DataType.from_numpy(array.dtype)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, kind.value)


def _from_value(value: Any) -> Any:
    if not value.is_tensor() or not value.data_type().startswith(_EXOTIC_TYPES):
        return value.numpy()
    dtype = np.dtype(ir.DataType(value.element_type()).numpy())
    size = math.prod(value.shape()) * dtype.itemsize
    raw = ctypes.string_at(value.data_ptr(), size)
    return np.frombuffer(raw, dtype).reshape(value.shape()).copy()


def _open(model: ir.Model, options: Any, providers: list[str]) -> Any:
    try:
        with model_source(model) as (source, settings):
            for key, value in settings.items():
                options.add_session_config_entry(key, value)
            given = source if isinstance(source, bytes) else str(source)
            return ort.InferenceSession(given, options, providers=providers)
    except LucidFxError:
        raise
    except Exception as error:
        raise ModelError(f"onnxruntime does not take the model: {_reason(error)}") from error


@contextlib.contextmanager
def model_source(model: ir.Model) -> Iterator[tuple[bytes | Path, dict[str, str]]]:
    """What onnxruntime is given: the serialized model, or its file where it is too large for that.

    The file lasts as long as the context. The second are entries of the session's configuration.
    """
    if inline_bytes(model) > INLINE_LIMIT:
        with tempfile.TemporaryDirectory(prefix="lucid_fx.") as folder:
            path = Path(folder) / "model.onnx"
            save_model(model, path)
            yield path, {}
        return
    folder_of_weights = external_folder(model)
    key = "session.model_external_initializers_file_folder_path"
    yield model_bytes(model), {} if folder_of_weights is None else {key: str(folder_of_weights)}


@functools.cache
def load_into_onnxruntime(path: Path) -> None:
    """Let onnxruntime load the native library, which then can open sessions of its own."""
    ort.SessionOptions().register_custom_ops_library(str(path))


def _required_library() -> Path:
    path = library_path()
    if path is None:
        raise ModelError(
            "the model holds ops of the native library, which is not installed",
            hint="install lucid-fx where there is a C++ compiler; weights can be written for"
            " onnxruntime alone (matmulnbits)",
        )
    return path


def _reason(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def runtime_version() -> str:
    """The version of the installed onnxruntime."""
    return str(ort.__version__)
