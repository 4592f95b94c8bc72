"""Files are whole or not there, big data lies beside them, and sources are not written over."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from checks import model_from

from lucid_fx.errors import ModelError
from lucid_fx.ir import saving
from lucid_fx.ir.derived import DerivedTensor, Together, read, source_file
from lucid_fx.ir.saving import save_model
from lucid_fx.ir.serde import load_model


def model(seed: int = 0) -> ir.Model:
    made = model_from(
        f"""g (float[1,64] x) => (float[1,8] y)
        <float[64,8] w = {{{values(512, seed)}}}, float[8] b = {{{values(8)}}}> {{
        t = MatMul (x, w) y = Add (t, b) }}"""
    )
    made.graph.initializers["w"].const_value.name = "w"  # type: ignore[union-attr]
    return made


def values(count: int, seed: int = 0) -> str:
    return ",".join(f"{x:.4f}" for x in np.random.default_rng(seed).standard_normal(count))


def weight(model: ir.Model) -> np.ndarray:
    tensor = model.graph.initializers["w"].const_value
    assert tensor is not None
    return read(tensor)


@pytest.fixture
def external(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose data lies in a second file."""
    monkeypatch.setattr(saving, "EXTERNAL_LIMIT", 1000)
    (tmp_path / "in").mkdir()
    save_model(model(), tmp_path / "in" / "m.onnx")
    return tmp_path / "in" / "m.onnx"


def test_big_tensors_start_at_pages_of_the_second_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "EXTERNAL_LIMIT", 1000)
    big = model()
    for name in ("u", "v"):
        tensor = ir.tensor(np.ones((3, 4099), np.uint8), name=name)
        value = ir.Value(name=name, const_value=tensor)
        big.graph.register_initializer(value)
    save_model(big, tmp_path / "m.onnx")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]
    again = load_model(tmp_path / "m.onnx")
    offsets = [again.graph.initializers[name].const_value.offset for name in ("u", "v")]  # type: ignore[union-attr]
    assert [offset % saving.PAGE for offset in offsets] == [0, 0]
    np.testing.assert_array_equal(weight(again), weight(big))


def test_below_the_limit_one_file_holds_what_another_had(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "EXTERNAL_LIMIT", 10**6)
    (tmp_path / "out").mkdir()
    save_model(load_model(external), tmp_path / "out" / "m.onnx")
    assert os.listdir(tmp_path / "out") == ["m.onnx"]
    np.testing.assert_array_equal(weight(load_model(tmp_path / "out" / "m.onnx")), weight(model()))


def test_a_model_is_replaced_with_its_data(external: Path) -> None:
    save_model(model(1), external)
    assert sorted(os.listdir(external.parent)) == ["m.onnx", "m.onnx.1.data"]
    save_model(model(2), external)
    assert sorted(os.listdir(external.parent)) == ["m.onnx", "m.onnx.data"]
    np.testing.assert_array_equal(weight(load_model(external)), weight(model(2)))


def test_data_that_is_being_read_stays(external: Path) -> None:
    loaded = load_model(external)
    save_model(loaded, external)
    assert sorted(os.listdir(external.parent)) == ["m.onnx", "m.onnx.1.data", "m.onnx.data"]
    np.testing.assert_array_equal(weight(loaded), weight(load_model(external)))


def test_a_failure_leaves_the_old_model(external: Path) -> None:
    before = {file.name: file.read_bytes() for file in external.parent.iterdir()}

    def fail() -> Any:
        raise ModelError("no such luck")

    broken = model(1)
    initializer = broken.graph.initializers["w"]
    assert initializer.const_value is not None
    initializer.const_value = DerivedTensor(
        fail, ir.DataType.FLOAT, (64, 8), initializer.const_value, "w"
    )
    with pytest.raises(ModelError, match="no such luck"):
        save_model(broken, external)
    assert {file.name: file.read_bytes() for file in external.parent.iterdir()} == before


def test_a_file_with_weights_of_the_model_is_not_written_over(external: Path) -> None:
    data = external.with_name("m.onnx.data")
    with pytest.raises(ModelError, match=r"m.onnx.data' holds weights of this model; give another"):
        save_model(load_model(external), data)


def test_a_source_that_is_gone_is_named(external: Path, tmp_path: Path) -> None:
    loaded = load_model(external)
    external.with_name("m.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"m.onnx.data' is missing \(tensor 'w'\); weights are"):
        save_model(loaded, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    with pytest.raises(ModelError, match="is missing"):
        weight(loaded)


def test_a_source_that_was_cut_is_named(external: Path) -> None:
    loaded = load_model(external)
    with external.with_name("m.onnx.data").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(ModelError, match=r"cannot be read \(buffer is smaller.*tensor 'w'"):
        weight(loaded)


def test_derived_tensors_know_their_file(external: Path) -> None:
    tensor = load_model(external).graph.initializers["w"].const_value
    assert tensor is not None
    derived = DerivedTensor(lambda: read(tensor) * 2, ir.DataType.FLOAT, (64, 8), tensor, "twice")
    assert source_file(derived) == external.with_name("m.onnx.data")
    np.testing.assert_array_equal(derived.numpy(), 2 * weight(model()))


def test_arrays_of_one_computation_are_computed_once() -> None:
    runs: list[str] = []

    def compute(key: str) -> dict[str, np.ndarray]:
        runs.append(key)
        return {name: np.array([name]) for name in ("a", "b")}

    together = Together()
    for name in ("a", "b"):
        assert together.take("one", name, lambda: compute("one")) == [name]
    assert runs == ["one"]
    together.take("one", "a", lambda: compute("one"))  # it was handed over already
    together.take("two", "b", lambda: compute("two"))
    together.take("one", "b", lambda: compute("one"))  # and this was let go for "two"
    assert runs == ["one", "one", "two", "one"]
