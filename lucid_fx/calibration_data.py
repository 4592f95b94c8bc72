"""Calibration samples out of an ``.npz`` file, checked against a model and read one at a time."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.errors import DataError
from lucid_fx.feeds import Feed
from lucid_fx.ir.naming import near_matches

_HEADER_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@dataclass(frozen=True)
class ArrayHeader:
    """What a stored array is, known without reading its values."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]


class CalibrationData:
    """The samples of an ``.npz`` file; iterating reads one sample at a time.

    The file holds either arrays named ``<sample>/<input>`` (samples come in natural order), or
    one array for each input with the samples on axis 0. In the second form a sample keeps a
    leading axis of 1, except where the input has one axis less than the array. Everything that
    names, shapes and dtypes can tell is checked when the object is made.

    Args:
        path: the file.
        inputs: the model's graph inputs.

    Raises:
        DataError: the file is missing, not an ``.npz``, empty, or does not fit the model.
    """

    def __init__(self, path: str | Path, inputs: Sequence[ir.Value]) -> None:
        self.path = Path(path)
        self._inputs = {value.name or "": value for value in inputs}
        self._headers = self._read_headers()
        self._samples: dict[str, dict[str, str]] = {}
        self._stacked: dict[str, int | None] = {}
        if not self._headers:
            raise self._error("there are no samples in it")
        if any(key in self._inputs for key in self._headers):
            self._check_stacked()
        else:
            self._check_named()

    def __len__(self) -> int:
        if self._samples:
            return len(self._samples)
        return next(count for count in self._stacked.values() if count is not None)

    def __iter__(self) -> Iterator[Feed]:
        try:
            yield from self._named() if self._samples else self._slices()
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise self._error(f"it is damaged ({error})") from error

    def _error(self, message: str, hint: str | None = None) -> DataError:
        return DataError(f"calibration data {str(self.path)!r}: {message}", hint=hint)

    def _read_headers(self) -> dict[str, ArrayHeader]:
        if not self.path.is_file():
            raise self._error("there is no such file")
        if not zipfile.is_zipfile(self.path):
            raise self._error("it is not an .npz file", "write it with numpy.savez")
        with zipfile.ZipFile(self.path) as archive:
            members = [name for name in archive.namelist() if not name.endswith("/")]
            headers = {}
            for member in members:
                with archive.open(member) as stream:
                    headers[member.removesuffix(".npy")] = self._read_header(member, stream)
        return headers

    def _read_header(self, member: str, stream: IO[bytes]) -> ArrayHeader:
        try:
            version = np.lib.format.read_magic(stream)
            header = ArrayHeader(*_HEADER_READERS[version](stream))
        except (ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise self._error(f"its member {member!r} is not an array") from error
        if header.dtype.hasobject:
            raise self._error(f"its array {member!r} holds Python objects, not numbers")
        return header

    def _check_named(self) -> None:
        found: dict[str, dict[str, str]] = {}
        for key, header in self._headers.items():
            fitting = [name for name in self._inputs if key.endswith(f"/{name}")]
            if not fitting:
                raise self._unknown(key)
            name = max(fitting, key=len)
            self._check_dtype(key, name, header)
            self._check_shape(key, name, header.shape)
            found.setdefault(key[: -len(name) - 1], {})[name] = key
        self._samples = {sample: found[sample] for sample in sorted(found, key=_natural)}
        for sample, keys in self._samples.items():
            missing = [name for name in self._inputs if name not in keys]
            if missing:
                raise self._error(f"sample {sample!r} lacks input {missing[0]!r}")

    def _check_stacked(self) -> None:
        for key, header in self._headers.items():
            if key not in self._inputs:
                raise self._unknown(key)
            self._check_dtype(key, key, header)
            self._stacked[key] = self._count(key, header)
        missing = [name for name in self._inputs if name not in self._stacked]
        if missing:
            raise self._error(f"there is no array for input {missing[0]!r}")
        counts = {name: count for name, count in self._stacked.items() if count is not None}
        if not counts:
            raise self._error("no array has an axis of samples")
        if len(set(counts.values())) > 1:
            told = ", ".join(f"{count} of {name!r}" for name, count in counts.items())
            raise self._error(f"the inputs have unlike numbers of samples: {told}")
        if not next(iter(counts.values())):
            raise self._error("there are no samples in it")

    def _count(self, name: str, header: ArrayHeader) -> int | None:
        """Number of samples along axis 0; None for a scalar that all samples share."""
        shape, wanted = header.shape, self._inputs[name].shape
        if wanted is not None and len(shape) == len(wanted) + 1:
            self._check_shape(name, name, shape[1:])
            return shape[0]
        if not shape and (wanted is None or len(wanted) == 0):
            return None
        if wanted is not None and len(shape) == len(wanted):
            lead = wanted[0]
            if isinstance(lead, int) and lead != 1:
                raise self._error(
                    f"array {name!r} has no axis of samples: the leading axis of that input is"
                    f" always {lead}",
                    f"give it the shape [samples, {', '.join(map(str, wanted))}]",
                )
            self._check_shape(name, name, (1, *shape[1:]))
            return shape[0]
        if wanted is None and shape:
            return shape[0]
        raise self._wrong_shape(name, name, ", with the samples on a leading axis")

    def _unknown(self, key: str) -> DataError:
        hint = near_matches(key.rpartition("/")[2] if "/" in key else key, self._inputs)
        return self._error(
            f"array {key!r} names no input of the model",
            f"{hint} (arrays are named <sample>/<input>, or <input>)",
        )

    def _check_dtype(self, key: str, name: str, header: ArrayHeader) -> None:
        dtype = self._inputs[name].dtype
        if dtype is None or dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
            return
        wanted = np.dtype(dtype.numpy())
        if header.dtype != wanted:
            raise self._error(
                f"array {key!r} has dtype {header.dtype}, input {name!r} takes {wanted}",
                f"convert it with .astype({wanted.name!r})",
            )

    def _check_shape(self, key: str, name: str, shape: tuple[int, ...]) -> None:
        wanted = self._inputs[name].shape
        if wanted is None:
            return
        if len(shape) != len(wanted) or any(
            isinstance(want, int) and want != size
            for want, size in zip(wanted, shape, strict=False)
        ):
            raise self._wrong_shape(key, name)

    def _wrong_shape(self, key: str, name: str, more: str = "") -> DataError:
        shape, wanted = self._headers[key].shape, self._inputs[name].shape or ()
        return self._error(
            f"array {key!r} of shape {list(shape)} (rank {len(shape)}) does not fit input {name!r}"
            f" of shape [{', '.join(map(str, wanted))}] (rank {len(wanted)}){more}"
        )

    def _named(self) -> Iterator[Feed]:
        with np.load(self.path, allow_pickle=False) as archive:
            for keys in self._samples.values():
                yield {name: archive[key] for name, key in keys.items()}

    def _slices(self) -> Iterator[Feed]:
        rows = {name: self._rows(name) for name in self._stacked}
        for _ in range(len(self)):
            yield {name: next(source) for name, source in rows.items()}

    def _rows(self, name: str) -> Iterator[NDArray[Any]]:
        """The samples of one stacked array, streamed out of the archive."""
        header, wanted = self._headers[name], self._inputs[name].shape
        if self._stacked[name] is None or header.fortran_order:
            with np.load(self.path, allow_pickle=False) as archive:
                whole = archive[name]
            while self._stacked[name] is None:
                yield whole
            rows: Iterator[NDArray[Any]] = map(np.ascontiguousarray, whole)
        else:
            rows = self._stream(name, header)
        drop = wanted is not None and len(header.shape) == len(wanted) + 1
        for row in rows:
            yield row if drop else row[np.newaxis]

    def _stream(self, name: str, header: ArrayHeader) -> Iterator[NDArray[Any]]:
        size = math.prod(header.shape[1:]) * header.dtype.itemsize
        with zipfile.ZipFile(self.path) as archive, archive.open(f"{name}.npy") as stream:
            self._read_header(name, stream)  # leaves the stream at the first value
            for _ in range(header.shape[0]):
                data = stream.read(size)
                if len(data) < size:
                    raise self._error(f"its array {name!r} is cut short")
                yield np.frombuffer(data, header.dtype).reshape(header.shape[1:])


def _natural(text: str) -> list[Any]:
    """A sort key in which ``s2`` comes before ``s10``."""
    parts = re.split(r"([0-9]+)", text)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]
