"""Finding, checking and loading the native library, with and without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_build import native

from lucid_fx.errors import NativeLibraryError
from lucid_fx.native import library
from lucid_fx.native.library import NativeLibrary

LIBRARY = native()
ISAS = LIBRARY.isas()


def test_best_kernels_first_and_isa_agrees_with_python() -> None:
    assert ISAS[-1] == "scalar"
    assert library.cpu_isa() == library.python_cpu_isa() == LIBRARY.cpu_isa()
    if library.cpu_isa().startswith("avx512"):
        assert ISAS == ["avx512", "avx2", "scalar"]
    assert LIBRARY.version().count(".") == 2


def test_a_library_that_cannot_be_used_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "liblucid_fx.so"
    broken.write_text("not a library")
    with pytest.raises(NativeLibraryError, match="cannot be loaded"):
        NativeLibrary(broken)
    monkeypatch.setenv("LUCID_FX_LIBRARY", str(broken))
    library.load.cache_clear()
    assert library.cpu_isa() == LIBRARY.cpu_isa()
    library.load.cache_clear()


def test_path_override_and_absence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCID_FX_LIBRARY", str(LIBRARY.path))
    assert library.library_path() == LIBRARY.path
    monkeypatch.delenv("LUCID_FX_LIBRARY")
    monkeypatch.setattr(library, "_FILE_NAME", "absent.so")
    assert library.library_path() is None


def test_python_isa_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        ("x86_64", set(), "scalar"),
        ("x86_64", {"avx2", "fma", "f16c"}, "avx2"),
        ("x86_64", {"avx2", "fma", "f16c", "avx_vnni"}, "avxvnni"),
        ("arm64", {"hw.optional.arm.FEAT_DotProd: 1"}, "neondot"),
        ("aarch64", {"asimd"}, "neon"),
    ]
    for machine, features, isa in cases:
        monkeypatch.setattr(library.platform, "machine", lambda m=machine: m)
        monkeypatch.setattr(library, "_cpu_features", lambda f=features: f)
        assert library.python_cpu_isa() == isa


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(NativeLibraryError, match="lfx_absent"):
        LIBRARY.bind({"lfx_absent": (None,)})


def test_another_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_ABI_VERSION", -1)
    with pytest.raises(NativeLibraryError, match=r"has ABI \d+, but this package needs -1"):
        NativeLibrary(LIBRARY.path)
