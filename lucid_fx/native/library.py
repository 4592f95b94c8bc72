"""The native library ``liblucid_fx``, found, checked and loaded with ctypes.

The library is one shared object without Python in it: onnxruntime loads it for its custom ops, and
this module loads the same image, so both see the same observers. It is optional: without it
:func:`load` gives None, and the caller does the work in Python.

What the library can do is declared area by area, in the modules beside this one: each names the
functions it calls and binds them with :meth:`NativeLibrary.bind`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lucid_fx.errors import LucidFxWarning, NativeLibraryError

Signature = tuple[Any, ...]
"""The ctypes of one C function: its result, then its arguments."""

_ABI_VERSION = 5  # LFX_ABI_VERSION of native/c_api.h
_FILE_NAME = "liblucid_fx.dylib" if sys.platform == "darwin" else "liblucid_fx.so"
_SIGNATURES: dict[str, Signature] = {
    "lfx_abi_version": (ctypes.c_int32,),
    "lfx_version": (ctypes.c_char_p,),
    "lfx_last_error": (ctypes.c_char_p,),
    "lfx_cpu_isa": (ctypes.c_char_p,),
    "lfx_kernel_isa": (ctypes.c_char_p, ctypes.c_size_t),
}


class NativeLibrary:
    """The loaded library.

    Args:
        path: the shared object.

    Raises:
        NativeLibraryError: it cannot be loaded, or is of another build than this package.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._dll = ctypes.CDLL(str(path))
        except OSError as error:
            raise self._unusable(error) from error
        self._core = self.bind(_SIGNATURES)
        if (abi := self._core.lfx_abi_version()) != _ABI_VERSION:
            raise NativeLibraryError(
                f"the native library {path} has ABI {abi}, but this package needs {_ABI_VERSION}",
                hint="reinstall lucid-fx so that both come from one build",
            )

    def bind(
        self, signatures: Mapping[str, Signature], *, instant: bool = False
    ) -> SimpleNamespace:
        """Declare C functions and return them as attributes of one object.

        Args:
            signatures: function name → result and argument types.
            instant: they take nanoseconds, and so keep Python's lock: no thread gets in between.

        Raises:
            NativeLibraryError: the library has no function of that name.
        """
        functions = SimpleNamespace()
        dll = ctypes.PyDLL(str(self.path)) if instant else self._dll
        for name, (result, *arguments) in signatures.items():
            try:
                function = getattr(dll, name)
            except AttributeError as error:
                raise self._unusable(error) from error
            function.restype = result
            function.argtypes = arguments
            setattr(functions, name, function)
        return functions

    def check(self, failed: int, *, tensor: str | None = None) -> None:
        """Raise what the last call of this thread reported, when it returned ``failed``.

        Raises:
            NativeLibraryError: with the library's own text.
        """
        if failed:
            raise NativeLibraryError(_text(self._core.lfx_last_error()), tensor=tensor)

    def version(self) -> str:
        """Return the version of lucid_fx that the library was built from."""
        return _text(self._core.lfx_version())

    def cpu_isa(self) -> str:
        """Return the best instruction set of this machine, as :func:`cpu_isa`."""
        return _text(self._core.lfx_cpu_isa())

    def isas(self) -> list[str]:
        """Return the kernel sets that this machine can run, best first."""
        return list(self._kernel_isas())

    def _kernel_isas(self) -> Iterator[str]:
        index = 0
        while (name := self._core.lfx_kernel_isa(index)) is not None:
            yield _text(name)
            index += 1

    def _unusable(self, error: Exception) -> NativeLibraryError:
        return NativeLibraryError(
            f"the native library {self.path} cannot be loaded: {error}",
            hint="reinstall lucid-fx, or unset LUCID_FX_LIBRARY",
        )


def library_path() -> Path | None:
    """Return the native library, or None when this installation has none.

    ``LUCID_FX_LIBRARY`` overrides the search; a path where there is no file means to do without.
    An editable install keeps the library with the metadata in site-packages, away from the sources.
    """
    if override := os.environ.get("LUCID_FX_LIBRARY"):
        return Path(override) if Path(override).is_file() else None
    candidates = [Path(__file__).parent / _FILE_NAME]
    try:
        installed = metadata.distribution("lucid-fx").locate_file(f"lucid_fx/native/{_FILE_NAME}")
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
        f"lucid_fx runs without its native library, {why}: calibration and block"
        " quantization are slower, and values inside If, Loop and Scan bodies stay in float",
        LucidFxWarning,
        stacklevel=2,
    )


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


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


def _text(raw: bytes) -> str:
    return raw.decode()
