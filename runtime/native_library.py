"""The native library ``liblucid_fx``, bound with ctypes.

The library is one shared object without Python in it: onnxruntime loads it for its custom ops, and
this module loads the same image, so both see the same observers. It is optional: without it
:func:`load` gives None, and the caller does the work in Python.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.errors import LucidFxWarning, NativeLibraryError

KINDS = (
    "minmax",
    "moving_average",
    "per_channel",
    "per_channel_moving_average",
    "histogram",
)

_ABI_VERSION = 1  # LFX_ABI_VERSION of native/c_api.h
_FILE_NAME = "liblucid_fx.dylib" if sys.platform == "darwin" else "liblucid_fx.so"
_ELEMENT_TYPES = {np.dtype(np.float32): 1, np.dtype(np.float16): 10, np.dtype(np.float64): 11}


@dataclass
class ObserverState:
    """Everything one observer has recorded.

    ``min_val`` and ``max_val`` are the statistic of the kind: the moving averages for
    ``moving_average``, the range of all data for every other kind. ``overall_min`` and
    ``overall_max`` are the range of all data whatever the kind. Values that are not finite are
    counted and otherwise ignored; without a finite value a range is (+inf, -inf).
    """

    kind: str
    batches: int = 0
    elements: int = 0
    max_elements: int = 0
    nan_count: int = 0
    inf_count: int = 0
    min_val: float = math.inf
    max_val: float = -math.inf
    channel_min: NDArray[np.float32] | None = None
    channel_max: NDArray[np.float32] | None = None
    histogram: NDArray[np.int64] | None = None
    histogram_min: float = math.inf
    histogram_max: float = -math.inf
    overall_min: float | None = None
    overall_max: float | None = None

    def __post_init__(self) -> None:
        if self.overall_min is None:
            self.overall_min = self.min_val
        if self.overall_max is None:
            self.overall_max = self.max_val


class _Config(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_char_p),
        ("bins", ctypes.c_int64),
        ("averaging_constant", ctypes.c_float),
        ("ch_axis", ctypes.c_int64),
    )


class _State(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_char_p),
        ("batches", ctypes.c_int64),
        ("elements", ctypes.c_int64),
        ("max_elements", ctypes.c_int64),
        ("nan_count", ctypes.c_int64),
        ("inf_count", ctypes.c_int64),
        ("overall_min", ctypes.c_float),
        ("overall_max", ctypes.c_float),
        ("average_min", ctypes.c_float),
        ("average_max", ctypes.c_float),
        ("histogram_min", ctypes.c_float),
        ("histogram_max", ctypes.c_float),
        ("channels", ctypes.c_int64),
        ("bins", ctypes.c_int64),
    )


class NativeLibrary:
    """The loaded library. Observers are process-wide and found by key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._dll = ctypes.CDLL(str(path))
            self._declare()
        except (OSError, AttributeError) as error:
            raise NativeLibraryError(
                f"the native library {path} cannot be loaded: {error}",
                hint="reinstall lucid-fx, or unset LUCID_FX_LIBRARY",
            ) from error
        if (abi := self._dll.lfx_abi_version()) != _ABI_VERSION:
            raise NativeLibraryError(
                f"the native library {path} has ABI {abi}, but this package needs {_ABI_VERSION}",
                hint="reinstall lucid-fx so that both come from one build",
            )

    def version(self) -> str:
        """Return the version of lucid_fx that the library was built from."""
        return _text(self._dll.lfx_version())

    def cpu_isa(self) -> str:
        """Return the best instruction set of this machine, as :func:`cpu_isa`."""
        return _text(self._dll.lfx_cpu_isa())

    def isas(self) -> list[str]:
        """Return the kernel sets that this machine can run, best first."""
        return list(self._kernel_isas())

    def update(
        self,
        key: str,
        x: NDArray[Any],
        *,
        kind: str,
        bins: int = 2048,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        isa: str | None = None,
    ) -> None:
        """Record one batch, as the op ``lucid_fx.Observe`` does; ``isa`` forces a kernel set."""
        dtype = _ELEMENT_TYPES.get(x.dtype)
        if dtype is None:
            raise NativeLibraryError(f"observers take float tensors, not {x.dtype}", tensor=key)
        data = np.require(x, requirements="C")
        dims = (ctypes.c_int64 * x.ndim)(*x.shape)
        config = _Config(kind.encode(), bins, averaging_constant, ch_axis)
        self._check(
            self._dll.lfx_observer_update(
                key.encode(),
                ctypes.byref(config),
                dtype,
                data.ctypes.data,
                dims,
                x.ndim,
                None if isa is None else isa.encode(),
            ),
            key,
        )

    def state(self, key: str) -> ObserverState | None:
        """Return what the observer has recorded; None when no batch reached this key."""
        raw = _State()
        self._check(self._dll.lfx_observer_read(key.encode(), ctypes.byref(raw), *(None,) * 3), key)
        if raw.kind is None:
            return None
        low, high = np.empty((2, raw.channels), np.float32)
        counts = np.empty(raw.bins, np.int64)
        buffers = (low.ctypes.data, high.ctypes.data, counts.ctypes.data)
        self._check(self._dll.lfx_observer_read(key.encode(), ctypes.byref(raw), *buffers), key)
        averaged = raw.kind == b"moving_average"
        return ObserverState(
            kind=_text(raw.kind),
            batches=raw.batches,
            elements=raw.elements,
            max_elements=raw.max_elements,
            nan_count=raw.nan_count,
            inf_count=raw.inf_count,
            min_val=raw.average_min if averaged else raw.overall_min,
            max_val=raw.average_max if averaged else raw.overall_max,
            channel_min=low if raw.channels else None,
            channel_max=high if raw.channels else None,
            histogram=counts if raw.bins else None,
            histogram_min=raw.histogram_min,
            histogram_max=raw.histogram_max,
            overall_min=raw.overall_min,
            overall_max=raw.overall_max,
        )

    def load_state(
        self,
        key: str,
        state: ObserverState,
        *,
        bins: int | None = None,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
    ) -> None:
        """Replace what the observer has recorded; a histogram also tells ``bins``."""
        low, high, counts = _vectors(state, key)
        if bins is None:
            bins = counts.size or 2048
        averaged = state.kind == "moving_average"
        raw = _State(
            batches=state.batches,
            elements=state.elements,
            max_elements=state.max_elements,
            nan_count=state.nan_count,
            inf_count=state.inf_count,
            overall_min=state.overall_min if averaged else state.min_val,
            overall_max=state.overall_max if averaged else state.max_val,
            average_min=state.min_val if averaged else math.inf,
            average_max=state.max_val if averaged else -math.inf,
            histogram_min=state.histogram_min,
            histogram_max=state.histogram_max,
            channels=low.size,
            bins=counts.size,
        )
        config = _Config(state.kind.encode(), bins, averaging_constant, ch_axis)
        buffers = (low.ctypes.data, high.ctypes.data, counts.ctypes.data)
        self._check(
            self._dll.lfx_observer_load(
                key.encode(), ctypes.byref(config), ctypes.byref(raw), *buffers
            ),
            key,
        )

    def reset(self, prefix: str) -> None:
        """Forget all observers whose key starts with ``prefix``; live sessions may go on."""
        self._dll.lfx_observer_reset(prefix.encode())

    def _kernel_isas(self) -> Iterator[str]:
        index = 0
        while (name := self._dll.lfx_kernel_isa(index)) is not None:
            yield _text(name)
            index += 1

    def _check(self, failed: int, key: str) -> None:
        if failed:
            raise NativeLibraryError(_text(self._dll.lfx_last_error()), tensor=key)

    def _declare(self) -> None:
        pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        config, state = ctypes.POINTER(_Config), ctypes.POINTER(_State)
        signatures: dict[str, tuple[Any, ...]] = {  # name: result, then arguments
            "lfx_abi_version": (ctypes.c_int32,),
            "lfx_version": (text,),
            "lfx_last_error": (text,),
            "lfx_cpu_isa": (text,),
            "lfx_kernel_isa": (text, size),
            "lfx_observer_update": (
                *(ctypes.c_int, text, config, ctypes.c_int32, pointer),
                *(ctypes.POINTER(ctypes.c_int64), size, text),
            ),
            "lfx_observer_read": (ctypes.c_int, text, state, pointer, pointer, pointer),
            "lfx_observer_load": (ctypes.c_int, text, config, state, pointer, pointer, pointer),
            "lfx_observer_reset": (None, text),
        }
        for name, (result, *arguments) in signatures.items():
            function = getattr(self._dll, name)
            function.restype = result
            function.argtypes = arguments


def library_path() -> Path | None:
    """Return the native library, or None when this installation has none.

    ``LUCID_FX_LIBRARY`` overrides the search; a path where there is no file means to do without.
    An editable install keeps the library with the metadata in site-packages, away from the sources.
    """
    if override := os.environ.get("LUCID_FX_LIBRARY"):
        return Path(override) if Path(override).is_file() else None
    candidates = [Path(__file__).parent / _FILE_NAME]
    try:
        installed = metadata.distribution("lucid-fx").locate_file(f"lucid_fx/runtime/{_FILE_NAME}")
        candidates.append(Path(str(installed)))
    except metadata.PackageNotFoundError:
        pass  # run from a source tree
    return next((path for path in candidates if path.is_file()), None)


@functools.cache
def load() -> NativeLibrary | None:
    """Return the native library, loaded once; None when there is none."""
    path = library_path()
    return None if path is None else NativeLibrary(path)


@functools.cache
def say_missing() -> None:
    """Warn, once a process, that there is no library and what that means."""
    override = os.environ.get("LUCID_FX_LIBRARY")
    why = f"LUCID_FX_LIBRARY names no file ({override})" if override else "it was not built"
    warnings.warn(
        f"lucid_fx runs without its native library, {why}: calibration is slower, and values"
        " inside If, Loop and Scan bodies stay in float",
        LucidFxWarning,
        stacklevel=2,
    )


def cpu_isa() -> str:
    """Return the best instruction set of this machine, with or without the library.

    One of scalar, avx2, avxvnni, avx512, avx512vnni, neon, neondot. On ``avx2`` and ``avx512``
    (no VNNI) sums of two 8-bit products saturate at 16 bits.
    """
    try:
        library = load()
    except NativeLibraryError:  # whoever needs the library itself will report it
        library = None
    return python_cpu_isa() if library is None else library.cpu_isa()


def python_cpu_isa() -> str:
    """Return :func:`cpu_isa` from what the operating system tells; ``scalar`` when it does not."""
    features = _cpu_features()
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "neondot" if features & {"asimddp", "hw.optional.arm.FEAT_DotProd: 1"} else "neon"
    if not {"avx2", "fma", "f16c"} <= features:
        return "scalar"
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= features:
        return "avx512vnni" if features & {"avx512_vnni", "avx512vnni"} else "avx512"
    return "avxvnni" if "avx_vnni" in features else "avx2"


def _cpu_features() -> set[str]:
    try:
        if sys.platform == "darwin":
            command = ["sysctl", "machdep.cpu", "hw.optional.arm.FEAT_DotProd"]
            output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            return {*output.lower().split(), *output.splitlines()}
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return set(line.split(":", 1)[1].split())
    except OSError:
        pass
    return set()


def _vectors(
    state: ObserverState, key: str
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    low = np.ascontiguousarray([] if state.channel_min is None else state.channel_min, np.float32)
    high = np.ascontiguousarray([] if state.channel_max is None else state.channel_max, np.float32)
    counts = np.ascontiguousarray([] if state.histogram is None else state.histogram, np.int64)
    if low.shape != high.shape:
        raise NativeLibraryError("channel_min and channel_max differ in length", tensor=key)
    return low, high, counts


def _text(raw: bytes) -> str:
    return raw.decode()
