"""`lucid-fx demo`, from end to end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lucid_fx.cli import main
from lucid_fx.demo import demo_text, latency_ratio, run_demo


def test_demo_measures_and_writes(tmp_path: Path) -> None:
    told: list[str] = []
    done: list[tuple[int, int | None]] = []
    out = tmp_path / "small.onnx"
    result = run_demo(out, told.append, lambda n, total: done.append((n, total)), seconds=0.2)
    assert result.images == 2000
    assert result.accuracy >= result.accuracy_float - 0.004
    assert result.bytes == out.stat().st_size < result.bytes_float / 2
    assert result.latency_ratio > 0
    assert done[-1] == (128, 128)
    assert [line.split()[0] for line in told] == [
        "trace", "fuse", "prepare", "calibrate", "convert",
    ]  # fmt: skip
    assert "accuracy, 2,000 images" in demo_text(result)


def test_demo_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    printed = capsys.readouterr()
    for word in ("accuracy", "size", "latency", "quantized", "written fmnist_dw_int8.onnx"):
        assert word in printed.out
    assert not printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["fmnist_dw_int8.onnx"]


def test_demo_needs_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "-o", str(tmp_path / "none" / "m.onnx")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_latency_ratio_of_a_slower_run() -> None:
    ratio = latency_ratio(
        lambda feed: time.sleep(0.0004), lambda feed: time.sleep(0.0001), [{}], seconds=0.05
    )
    assert ratio > 1.3
