"""Sessions of the native library's own, and small samples that run side by side in them.

Threads of Python would wait for its lock, and waking one takes a quarter of a small sample's time.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.native.library import NativeLibrary, Signature


class _Source(ctypes.Structure):
    _fields_ = (
        ("model", ctypes.c_char_p),
        ("size", ctypes.c_size_t),
        ("path", ctypes.c_char_p),
        ("output", ctypes.c_char_p),
        ("optimize", ctypes.c_int32),
        ("entries", ctypes.POINTER(ctypes.c_char_p)),
        ("entry_count", ctypes.c_size_t),
    )


class _Array(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_size_t),
    )


def _signatures() -> dict[str, Signature]:
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    out = ctypes.POINTER(ctypes.c_void_p)
    return {
        "lfx_session_open": (ctypes.c_int, ctypes.POINTER(_Source), out),
        "lfx_session_close": (None, pointer),
        "lfx_lanes_new": (ctypes.c_int, pointer, size, out),
        "lfx_lanes_put": (ctypes.c_int, pointer, ctypes.POINTER(_Array), size),
        "lfx_lanes_finish": (ctypes.c_int, pointer),
        "lfx_lanes_done": (ctypes.c_int64, pointer),
        "lfx_lanes_free": (None, pointer),
    }


class LaneSession:
    """A model that runs for what its ops do, as observers: a sample in one thread.

    onnxruntime must have loaded the library before.

    Args:
        library: the loaded library.
        source: the serialized model, or its file.
        output: the name of any of its outputs.
        settings: onnxruntime's session configuration.
        optimize: False turns graph optimisation off.

    Raises:
        NativeLibraryError: onnxruntime does not take the model, with its text.
    """

    def __init__(
        self,
        library: NativeLibrary,
        source: bytes | Path,
        output: str,
        *,
        settings: Mapping[str, str] | None = None,
        optimize: bool = True,
    ) -> None:
        self.library, self.functions = library, library.bind(_signatures())
        self.handle = ctypes.c_void_p()
        texts = [text.encode() for pair in (settings or {}).items() for text in pair]
        raw = _Source(
            output=output.encode(),
            optimize=optimize,
            entries=(ctypes.c_char_p * len(texts))(*texts),
            entry_count=len(texts) // 2,
        )
        if isinstance(source, bytes):
            raw.model, raw.size = source, len(source)
        else:
            raw.path = str(source).encode()
        library.check(self.functions.lfx_session_open(ctypes.byref(raw), ctypes.byref(self.handle)))

    def __del__(self) -> None:
        self.functions.lfx_session_close(self.handle)


class Lanes:
    """Samples side by side, each in one thread; observers take them in their order.

    It is a context, as often as wanted; to leave it ends what was begun.

    Args:
        session: runs them.
        threads: how many at a time, the caller's thread included; at least 1.
    """

    def __init__(self, session: LaneSession, threads: int) -> None:
        self.threads = threads
        self._functions, self._library = session.functions, session.library
        self._handle = ctypes.c_void_p()
        self._library.check(
            self._functions.lfx_lanes_new(session.handle, threads, ctypes.byref(self._handle))
        )
        self._layout: tuple[Any, ...] = ()
        self._arrays: Any = None

    @property
    def done(self) -> int:
        """How many samples of this, or else the last, context have run to their end."""
        return int(self._functions.lfx_lanes_done(self._handle))

    def put(self, feed: Mapping[str, NDArray[Any]]) -> bool:
        """Give the next sample, which is copied. This thread may run some meanwhile.

        Args:
            feed: numeric arrays by graph input.

        Returns:
            False when a sample has failed: `finish` says why.
        """
        arrays = [np.asarray(array, order="C") for array in feed.values()]
        layout = (*feed, *((array.dtype, array.shape) for array in arrays))
        if layout != self._layout:  # most samples are as the one before
            self._layout, self._arrays = layout, _described(feed, arrays)
        for slot, array in zip(self._arrays, arrays, strict=True):
            slot.data = array.__array_interface__["data"][0]
        return not self._functions.lfx_lanes_put(self._handle, self._arrays, len(arrays))

    def finish(self) -> None:
        """Run what is left, unless a sample has failed, and end the threads.

        Raises:
            NativeLibraryError: the text of the first sample, in order, that failed.
        """
        self._library.check(self._functions.lfx_lanes_finish(self._handle))

    def __enter__(self) -> Lanes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._functions.lfx_lanes_finish(self._handle)

    def __del__(self) -> None:
        self._functions.lfx_lanes_free(self._handle)


def _described(names: Mapping[str, object], arrays: list[NDArray[Any]]) -> Any:
    """The arrays for C, without their data."""
    found = _several(_Array, len(arrays))()
    for slot, name, array in zip(found, names, arrays, strict=True):
        slot.name, slot.type = name.encode(), _element_type(array.dtype)
        slot.bytes, slot.rank = array.nbytes, array.ndim
        slot.dims = _several(ctypes.c_int64, array.ndim)(*array.shape)
    return found


@functools.cache
def _several(kind: Any, count: int) -> Any:
    """The type of a C array, which takes longer to make than an array of it."""
    return kind * count


@functools.cache
def _element_type(dtype: np.dtype[Any]) -> int:
    return int(ir.DataType.from_numpy(dtype).value)
