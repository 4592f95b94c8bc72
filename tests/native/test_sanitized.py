"""The native library under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from native_build import SOURCE

TESTS = Path(__file__).parent


@pytest.mark.slow
def test_no_kernel_reads_or_writes_past_its_operands(tmp_path: Path) -> None:
    if shutil.which("cmake") is None or not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler on this machine")
    build = ["cmake", "-S", SOURCE, "-B", tmp_path, f"-DLUCID_FX_SANITIZED={TESTS}/sanitized.cc"]
    jobs = str(os.cpu_count() or 1)
    for command in (build, ["cmake", "--build", tmp_path, "--parallel", jobs]):
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
    done = subprocess.run([tmp_path / "sanitized"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    calls, word = done.stdout.split()
    assert word == "calls"
    assert int(calls) > 10_000
