"""What the documentation says is true: code runs, commands work, links lead somewhere."""

from __future__ import annotations

import inspect
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lucid_fx import cli, models
from lucid_fx.accuracy_guard import LEAST_SQNR_DB
from lucid_fx.conversion import convert_passes
from lucid_fx.passes import FLOAT, IMPORT
from lucid_fx.passes.choose_integer_regions import (
    DEQUANTIZE_PRICE,
    QUANTIZE_PRICE,
    RELAYOUT_PRICE,
    ROUNDING_PRICE,
)
from lucid_fx.passes.fuse_pad_into_conv import FusePadIntoConv
from lucid_fx.prepared import KEPT_BYTES, KEPT_SAMPLES, MASKED_SHARE

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONG = {"demo": "tests/core/test_demo.py", "models": "tests/models/test_fetching.py"}
"""Commands that take long or fetch, and where they are tested; here only their names are."""
FASHION = models.get("fmnist_dw")


def called(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def python_of(page: Path) -> str:
    """All Python blocks of a page, on the lines where they stand."""
    lines, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        inside = line.startswith("```python") if fence else inside
    return "\n".join(lines)


def commands_of(page: Path) -> Iterator[list[str]]:
    """The arguments of every ``lucid-fx`` in a page's shell blocks."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        for part in re.split(r"&&|\n", block.replace("\\\n", " ")):
            words = shlex.split(part, comments=True)
            if words[:1] == ["lucid-fx"]:
                yield words[1:]


@pytest.mark.parametrize("page", [p for p in PAGES if python_of(p).strip()], ids=called)
def test_python_blocks_run_and_print_what_is_shown(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = compile(python_of(page), str(page), "exec", dont_inherit=True)
    exec(code, {"__name__": "docs"})
    printed = capsys.readouterr().out
    for shown in re.findall(r"^```output\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        assert shown in printed, printed


@pytest.mark.parametrize("page", [p for p in PAGES if list(commands_of(p))], ids=called)
def test_commands_run(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(FASHION.path(), "model.onnx")
    np.savez("samples.npz", image=np.concatenate([f["image"] for f in FASHION.calibration(4)]))
    for arguments in commands_of(page):
        if arguments[0] in LONG:
            assert (ROOT / LONG[arguments[0]]).is_file()
            arguments = [arguments[0], "--help"]
        assert cli.main(arguments) == 0, f"{shlex.join(arguments)}: {capsys.readouterr().err}"


@pytest.mark.parametrize("page", PAGES, ids=called)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


def test_every_pass_is_explained() -> None:
    text = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    names = {type(graph_pass).__name__ for graph_pass in (*IMPORT, *FLOAT)}
    names |= set(re.findall(r"\b([A-Z]\w+)\(", inspect.getsource(convert_passes)))
    for name in names:
        assert f"`{name}`" in text, name


def test_numbers_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "how_it_works.md").read_text(encoding="utf-8")
    kept = f"Up to {KEPT_SAMPLES} samples ({KEPT_BYTES // 2**20} MiB) are kept"
    for said in (
        kept,
        f"more than {MASKED_SHARE:.0%} of a value is infinite".replace("%", " %"),
        f"keeps less than\n{LEAST_SQNR_DB:g} dB",
    ):
        assert said in text, said
    prices = (ROOT / "docs" / "targets.md").read_text(encoding="utf-8")
    for price in (QUANTIZE_PRICE, DEQUANTIZE_PRICE, RELAYOUT_PRICE, ROUNDING_PRICE):
        assert f" {price:g} " in prices, price


def test_the_quoted_pass_is_the_real_one() -> None:
    text = (ROOT / "docs" / "writing_a_pass.md").read_text(encoding="utf-8")
    assert inspect.getsource(FusePadIntoConv) in text


def test_decisions_are_numbered_and_short() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{n:04d}" for n in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {page.name[:4]}: ")
        assert len(text.splitlines()) <= 30, page.name
