"""The file: written in one step, complete in itself, and texts of a model stay texts."""

from __future__ import annotations

import json
import math
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.quantization import CalibrationDataReader, quantize_static

import lucid_fx
import lucid_fx.models as zoo
from lucid_fx import cli
from lucid_fx.errors import DataError, ModelError
from lucid_fx.reporting.page import finite

sys.path.append(str(Path(__file__).resolve().parent))
from _graphs import HOSTILE, blocks, fashion


def content(path: Path) -> Any:
    """The data in a report."""
    found = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8")
    )
    assert len(found) == 1
    return json.loads(found[0])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    exact, coded, samples = fashion()
    return lucid_fx.report(exact, coded, tmp_path_factory.mktemp("r") / "r.html", data=samples)


def test_it_has_all_that_was_found(written: Path) -> None:
    exact, coded, samples = fashion()
    data = content(written)
    titles = [one["title"] for one in data["views"]]
    assert titles == ["float", "fused", "prepared", "quantized", "onnxruntime"]
    assert [row["node"] for row in data["ledger"]] == [entry.node for entry in coded.ledger]
    assert data["samples"] == len(samples)
    changed = [c for c in lucid_fx.diff(exact, coded).changes if c.kind != "same"]
    assert sum(one["count"] for one in data["rewrites"]) == len(changed) > 0
    compared = lucid_fx.compare(exact, coded, samples)
    assert len(data["errors"]) == len(compared.rows)
    assert data["times"]["ops"] and sum(data["times"]["float"]) > 0
    by_title = {one["title"]: one["nodes"] for one in data["views"]}
    assert all(n["time"] is not None for n in by_title["onnxruntime"])
    assert any(n["error"] is not None for n in by_title["float"])


def test_histograms_count_every_value_and_show_the_grid(written: Path) -> None:
    _, _, samples = fashion()
    shown = {one["tensor"]: one for one in content(written)["histograms"]}
    image = shown["image"]
    assert sum(image["counts"]) == sum(np.asarray(s["image"]).size for s in samples)
    low, high = image["range"]
    assert low <= min(image["x"]) and max(image["x"]) <= high + (high - low) / 100


def test_it_needs_no_network(written: Path) -> None:
    text = written.read_text("utf-8")
    own = text[: text.rindex("<script>")]  # the last one is the library of charts
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", own)
    assert not re.search(r"<(link|iframe|img|base)\b", own)
    assert not re.search(r"\bon\w+=", re.sub(r"<script.*?</script>", "", own, flags=re.S))
    assert "default-src 'none'" in own


def test_names_of_a_model_are_never_markup(tmp_path: Path) -> None:
    model = blocks(5, HOSTILE)
    model.graph.name = HOSTILE
    path = lucid_fx.report(model, model, tmp_path / "r.html")
    text = path.read_text("utf-8")
    assert "<img" not in text[: text.rindex("<script>")]
    assert content(path)["ledger"][0]["node"] == HOSTILE


def test_without_samples_there_are_no_numbers(tmp_path: Path) -> None:
    exact, coded, _ = fashion()
    data = content(lucid_fx.report(exact, coded, tmp_path / "r.html"))
    assert not data["errors"] and not data["histograms"] and not data["times"]["ops"]
    assert [one["title"] for one in data["views"]][-1] == "onnxruntime"


@pytest.mark.parametrize("name", ["byte_lm", pytest.param("silero_vad", marks=pytest.mark.fetched)])
def test_models_with_masks_bodies_and_other_formats(tmp_path: Path, name: str) -> None:
    model = zoo.get(name)
    try:
        path = model.path()
    except zoo.FetchError as error:
        pytest.skip(str(error))
    samples = list(model.calibration(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coded = lucid_fx.quantize(path, samples, format="qdq")
    data = content(lucid_fx.report(path, coded, tmp_path / "r.html", data=samples))
    assert len(data["ledger"]) == len(coded.ledger)
    assert data["errors"] and data["times"]["ops"]


def test_without_a_prepared_model_there_are_fewer_views(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ModelError("not with me")

    monkeypatch.setattr(sys.modules["lucid_fx.reporting.report"], "prepare_fx", refuse)
    exact, coded, samples = fashion()
    data = content(lucid_fx.report(exact, coded, tmp_path / "r.html", data=samples[:1]))
    assert [one["title"] for one in data["views"]] == ["float", "quantized", "onnxruntime"]
    assert data["histograms"] == []


def test_a_model_without_provenance_is_linked_by_names_and_structure(tmp_path: Path) -> None:
    exact, _, samples = fashion()
    reader = iter(samples)
    reading = type("Reader", (CalibrationDataReader,), {"get_next": lambda _: next(reader, None)})
    exact.save(tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "q.onnx", reading())
    data = content(lucid_fx.report(exact, tmp_path / "q.onnx", tmp_path / "r.html"))
    floats = {node.name for node in exact.model.graph}
    views = {one["title"]: one["nodes"] for one in data["views"]}
    linked = [node for node in views["quantized"] if floats.intersection(node["origins"])]
    assert {name for node in linked for name in node["origins"]} >= {
        node.name for node in exact.model.graph if node.op_type in ("Conv", "Gemm", "Add")
    }
    assert not any(node["status"] for node in views["quantized"])
    assert "has not made" in data["notes"][0]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    exact, coded, _ = fashion()
    path = tmp_path / "r.html"
    path.write_text("old")
    with pytest.raises(DataError):
        lucid_fx.report(exact, coded, path, data=[np.zeros((1, 2), np.float32)])
    assert path.read_text() == "old"
    lucid_fx.report(exact, coded, path)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ModelError, match="no folder"):
        lucid_fx.report(exact, coded, tmp_path / "absent" / "r.html")


def test_numbers_that_json_does_not_know_become_nothing() -> None:
    assert finite({"a": [math.inf, (1.0, math.nan)]}) == {"a": [None, [1.0, None]]}


def test_the_command_line_writes_one_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, coded, samples = fashion()
    float_path, quantized, data, out = (
        tmp_path / name for name in ("f.onnx", "q.onnx", "d.npz", "r.html")
    )
    exact.save(float_path)
    coded.save(quantized)
    np.savez(data, **{f"{i}/image": sample["image"] for i, sample in enumerate(samples)})
    arguments = ["report", str(float_path), str(quantized), "--data", str(data), "--samples", "3"]
    assert cli.main([*arguments, "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"written {out}\n"
    assert content(out)["samples"] == 3
    assert cli.main([*arguments, "-o", str(quantized)]) == 2
    assert cli.main([*arguments, "-o", str(tmp_path / "absent" / "r.html")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all(line.startswith("error: --out") for line in lines)
