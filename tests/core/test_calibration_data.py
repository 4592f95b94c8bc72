"""Reading `.npz` calibration data: both forms, and every way in which it can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from lucid_fx.calibration_data import CalibrationData
from lucid_fx.errors import DataError


def value(
    name: str, shape: list[int | str] | None, dtype: ir.DataType = ir.DataType.FLOAT
) -> ir.Value:
    dims = None if shape is None else ir.Shape(shape)
    return ir.Value(name=name, shape=dims, type=ir.TensorType(dtype))


IMAGE = value("image", ["n", 3])
MASK = value("attention/mask", ["n", 3], ir.DataType.INT64)


def write(folder: Path, **arrays: Any) -> Path:
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


def write_named(folder: Path, arrays: dict[str, Any]) -> Path:
    return write(folder, **arrays)


def row(number: float) -> np.ndarray[Any, Any]:
    return np.full((1, 3), number, np.float32)


def test_named_samples_come_in_natural_order(tmp_path: Path) -> None:
    path = write_named(tmp_path, {f"s{i}/image": row(i) for i in (10, 2, 1)})
    data = CalibrationData(path, [IMAGE])
    assert len(data) == 3
    assert [feed["image"][0, 0] for feed in data] == [1, 2, 10]
    assert [feed["image"][0, 0] for feed in data] == [1, 2, 10], "can be read again"


def test_input_names_may_hold_slashes(tmp_path: Path) -> None:
    mask = np.ones((1, 3), np.int64)
    path = write_named(
        tmp_path,
        {f"set/a/{i}/{name}": array for i in (0, 1) for name, array in
         (("image", row(i)), ("attention/mask", mask))},
    )  # fmt: skip
    feeds = list(CalibrationData(path, [IMAGE, MASK]))
    assert [set(feed) for feed in feeds] == [{"image", "attention/mask"}] * 2


def test_the_longest_fitting_input_name_counts(tmp_path: Path) -> None:
    short, long = value("x", ["n", 3]), value("a/x", ["n", 3])
    path = write_named(tmp_path, {"0/x": row(1), "0/a/x": row(2)})
    (feed,) = CalibrationData(path, [short, long])
    assert feed["x"][0, 0] == 1
    assert feed["a/x"][0, 0] == 2


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_stacked_samples_keep_a_leading_axis(tmp_path: Path, save: Any) -> None:
    stacked = np.arange(12, dtype=np.float32).reshape(4, 3)
    save(tmp_path / "data.npz", image=stacked)
    feeds = list(CalibrationData(tmp_path / "data.npz", [IMAGE]))
    assert [feed["image"].shape for feed in feeds] == [(1, 3)] * 4
    np.testing.assert_array_equal(np.concatenate([feed["image"] for feed in feeds]), stacked)


def test_a_stack_of_one_axis_more_gives_whole_inputs(tmp_path: Path) -> None:
    state = value("state", [2, 1, 4])
    path = write(tmp_path, state=np.zeros((5, 2, 1, 4), np.float32))
    feeds = list(CalibrationData(path, [state]))
    assert [feed["state"].shape for feed in feeds] == [(2, 1, 4)] * 5


def test_a_scalar_is_shared_by_all_samples(tmp_path: Path) -> None:
    rate = value("rate", [], ir.DataType.INT64)
    path = write(tmp_path, image=np.zeros((3, 3), np.float32), rate=np.int64(16000))
    feeds = list(CalibrationData(path, [IMAGE, rate]))
    assert [int(feed["rate"]) for feed in feeds] == [16000] * 3


def test_fortran_order_is_read_right(tmp_path: Path) -> None:
    stacked = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(4, 3))
    feeds = list(CalibrationData(write(tmp_path, image=stacked), [IMAGE]))
    np.testing.assert_array_equal(np.concatenate([feed["image"] for feed in feeds]), stacked)


def test_unknown_shapes_take_the_first_axis_for_samples(tmp_path: Path) -> None:
    path = write(tmp_path, x=np.zeros((2, 5), np.float32))
    assert [feed["x"].shape for feed in CalibrationData(path, [value("x", None)])] == [(1, 5)] * 2


def test_samples_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_named(tmp_path, {f"{i}/image": row(i) for i in range(5)})
    data = CalibrationData(path, [IMAGE])
    reads: list[str] = []
    read = np.lib.npyio.NpzFile.__getitem__
    monkeypatch.setattr(
        np.lib.npyio.NpzFile, "__getitem__", lambda self, key: reads.append(key) or read(self, key)
    )
    feeds = iter(data)
    next(feeds)
    assert reads == ["0/image"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no arrays": ({}, "there are no samples in it"),
    "no samples": ({"image": np.zeros((0, 3), np.float32)}, "there are no samples in it"),
    "unknown name": (
        {"imgae": np.zeros((4, 3), np.float32)},
        "array 'imgae' names no input of the model; did you mean 'image'?",
    ),
    "positional array": ({"arr_0": np.zeros((4, 3), np.float32)}, "array 'arr_0' names no input"),
    "unknown name in a sample": (
        {"0/imgae": row(0)},
        "array '0/imgae' names no input of the model; did you mean 'image'?",
    ),
    "stray array beside stacks": (
        {"image": np.zeros((4, 3), np.float32), "labels": np.zeros(4)},
        "array 'labels' names no input of the model",
    ),
    "double precision": (
        {"0/image": np.zeros((1, 3))},
        "array '0/image' has dtype float64, input 'image' takes float32;"
        " convert it with .astype('float32')",
    ),
    "rank too low": (
        {"0/image": np.zeros(3, np.float32)},
        "array '0/image' of shape [3] (rank 1) does not fit input 'image' of shape [n, 3] (rank 2)",
    ),
    "rank too high": (
        {"image": np.zeros((4, 1, 3, 1), np.float32)},
        "of shape [4, 1, 3, 1] (rank 4) does not fit input 'image'",
    ),
    "wrong size": (
        {"image": np.zeros((4, 5), np.float32)},
        "array 'image' of shape [4, 5] (rank 2) does not fit input 'image' of shape [n, 3]",
    ),
    "objects": ({"image": np.array([None])}, "holds Python objects"),
}  # fmt: skip


@pytest.mark.parametrize(("arrays", "text"), WRONG.values(), ids=WRONG)
def test_wrong_data_is_refused(tmp_path: Path, arrays: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError) as caught:
        CalibrationData(write_named(tmp_path, arrays), [IMAGE])
    assert text in str(caught.value)
    assert "data.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sample_that_lacks_an_input_is_named(tmp_path: Path) -> None:
    ones = np.ones((1, 3), np.int64)
    path = write_named(
        tmp_path, {"7/image": row(0), "7/attention/mask": ones, "8/attention/mask": ones}
    )
    with pytest.raises(DataError, match="sample '8' lacks input 'image'"):
        CalibrationData(path, [IMAGE, MASK])


def test_a_missing_stack_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, image=np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match="no array for input 'attention/mask'"):
        CalibrationData(path, [IMAGE, MASK])


def test_unlike_numbers_of_samples(tmp_path: Path) -> None:
    arrays = {"image": np.zeros((2, 3), np.float32), "attention/mask": np.zeros((3, 3), np.int64)}
    path = write_named(tmp_path, arrays)
    with pytest.raises(DataError, match="unlike numbers of samples: 2 of 'image', 3 of 'att"):
        CalibrationData(path, [IMAGE, MASK])


def test_a_fixed_leading_axis_is_no_axis_of_samples(tmp_path: Path) -> None:
    path = write(tmp_path, x=np.zeros((8, 3), np.float32))
    with pytest.raises(DataError, match=r"always 8; give it the shape \[samples, 8, 3\]"):
        CalibrationData(path, [value("x", [8, 3])])


def test_only_scalars(tmp_path: Path) -> None:
    path = write(tmp_path, rate=np.float32(1))
    with pytest.raises(DataError, match="no array has an axis of samples"):
        CalibrationData(path, [value("rate", [])])


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        CalibrationData(tmp_path / "none.npz", [IMAGE])
    np.save(tmp_path / "one.npy", row(0))
    with pytest.raises(DataError, match=r"not an \.npz file; write it with numpy\.savez"):
        CalibrationData(tmp_path / "one.npy", [IMAGE])


def test_a_foreign_zip_member(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(DataError, match=r"its member 'readme\.txt' is not an array"):
        CalibrationData(tmp_path / "data.npz", [IMAGE])


def test_damaged_values(tmp_path: Path) -> None:
    path = write(tmp_path, image=np.arange(3000, dtype=np.float32).reshape(1000, 3))
    data = CalibrationData(path, [IMAGE])
    content = bytearray(path.read_bytes())
    content[6000] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match="it is damaged"):
        list(data)
