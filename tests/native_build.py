"""Finds the native library for tests, or builds it: a machine with a compiler skips nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from lucid_fx.native.library import NativeLibrary, load

SOURCE = Path(__file__).resolve().parents[1] / "runtime"


def native() -> NativeLibrary:
    """The library of this installation, or one built from the sources, once for all workers."""
    library = load()
    if library is not None:
        return library
    if shutil.which("cmake") is None or not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler on this machine")
    build = Path(tempfile.gettempdir()) / f"lucid_fx_native_{os.getuid()}"
    build.mkdir(exist_ok=True)
    with (build / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", "-S", str(SOURCE), "-B", str(build)],
            ["cmake", "--build", str(build)],
        ):
            subprocess.run(command, check=True, capture_output=True)
    os.environ["LUCID_FX_LIBRARY"] = str(next(build.glob("liblucid_fx.*")))
    load.cache_clear()
    library = load()
    assert library is not None
    return library
