"""Opening a model without its weights gives the same model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from checks import model_from
from onnx import helper, numpy_helper

from lucid_fx import models
from lucid_fx.errors import ModelError
from lucid_fx.ir import mapped
from lucid_fx.ir.derived import read
from lucid_fx.ir.mapped import read_mapped
from lucid_fx.ir.serde import load_model, tensors

BODIES = """g (bool c, float[2,64] x) => (float[2,64] y) <float[64] small = {1, 2, 3}> {
    y = If (c) <then_branch = t () => (float[2,64] a) { a = LeakyRelu <alpha = 0.5> (x) },
                else_branch = e () => (float[2,64] b) { b = Add (x, small) }> }"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Weights in the graph and in a body, inputs behind them, and every kind of attribute."""
    proto = ir.to_proto(model_from(BODIES.replace("float[64] small", "float[3] small")
                                   .replace("(x, small)", "(x, x)")))  # fmt: skip
    body = proto.graph.node[0].attribute[0].g
    random = np.random.default_rng(0)
    for graph, name in ((body, "inside"), (proto.graph, "outside")):
        array = random.standard_normal((64, 300)).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(array, name))
    doubles = helper.make_tensor("typed", 1, [20000], random.standard_normal(20000))
    proto.graph.initializer.append(doubles)  # as numbers, not as raw bytes
    proto.doc_string = "behind the graph"
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def same(path: Path) -> list[str]:
    """Both ways of reading give the same; the names of what stayed in the file."""
    whole, small = load_model(path), load_model(path, mapped=True)
    pairs = list(zip(tensors(whole), tensors(small), strict=True))
    for a, b in pairs:
        assert (a.name, a.dtype, a.shape) == (b.name, b.dtype, b.shape)
        np.testing.assert_array_equal(read(b), a.numpy())
    bare = [onnx.ModelProto(), onnx.ModelProto()]
    for proto, given in zip(
        bare, (onnx.load(path, load_external_data=False), read_mapped(path)), strict=True
    ):
        proto.CopyFrom(given)
        for graph in (proto.graph, *(a.g for n in proto.graph.node for a in n.attribute)):
            for tensor in graph.initializer:
                for field in ("raw_data", "external_data", "data_location"):
                    tensor.ClearField(field)
    assert bare[0] == bare[1]
    return [str(b.name) for _, b in pairs if isinstance(b, ir.ExternalTensor)]


def test_large_raw_data_stays_in_the_file(path: Path) -> None:
    assert same(path) == ["outside", "inside"]
    assert read_mapped(path).ByteSize() < path.stat().st_size - 2 * 64 * 300 * 4 + 500


@pytest.mark.parametrize("name", ["byte_lm", "fmnist_dw"])
def test_real_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "LEAST", 100)
    assert len(same(models.get(name).path())) > 5


def test_links_are_read_as_before(path: Path, tmp_path: Path) -> None:
    (tmp_path / "soft.onnx").symlink_to(path)
    for link in (tmp_path / "soft.onnx", tmp_path / "hard.onnx"):
        if link.name == "hard.onnx":
            os.link(path, link)
        assert not any(
            isinstance(t, ir.ExternalTensor) for t in tensors(load_model(link, mapped=True))
        )


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda raw: raw[: len(raw) // 2], "ends beyond its message"),
        (lambda raw: b"\x0f" + raw, "byte 0 is no field of a protobuf"),
        (lambda raw: raw + b"\xff", "has no end"),
        (lambda raw: b"", "has no outputs"),
    ],
)
def test_damaged_files_are_no_models(path: Path, damage: object, text: str) -> None:
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(ModelError, match=text):
        load_model(path, mapped=True)
