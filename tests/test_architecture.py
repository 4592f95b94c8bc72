"""The rules of the code base itself: imports, what each pass comes with, how long files are."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lucid_fx
from lucid_fx import passes
from lucid_fx.passes.pipeline import GraphPass

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("lucid_fx", "passes", "runtime", "models")
ABOUT_300, ABOUT_150 = 400, 200
"""Lines of a file, and of a pass: guidance in the design, a third more is where it ends."""
HELPERS = {
    "linear": "fold_affine, tested through the two passes that fold",
    "qdq": "Codec, tested through insert_qdq",
    "equalization_sites": "find_sites, tested through equalize_channels",
    "weight_sites": "find_site, tested through quantize_weights",
    "weight_operands": "WeightOperands, tested through quantize_weights",
}
"""Files in passes/ that hold no pass and have no test file of their own."""


def sources() -> list[Path]:
    """All product files; each once, not again through the links."""
    return [
        path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))
        if not any(parent.is_symlink() for parent in path.parents if parent != ROOT)
    ]  # fmt: skip


def modules() -> Iterator[str]:
    for found in pkgutil.iter_modules(passes.__path__):
        yield found.name


def graph_passes() -> list[type[GraphPass]]:
    """Every pass class, from every file of passes/."""
    found = []
    for name in modules():
        module = importlib.import_module(f"lucid_fx.passes.{name}")
        for _, value in inspect.getmembers(module, inspect.isclass):
            if issubclass(value, GraphPass) and value.__module__ == module.__name__:
                found.append(value)
    return [cls for cls in found if cls is not GraphPass]


def test_imports_go_down_only() -> None:
    """The contracts in pyproject.toml, by import-linter."""
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("import-linter is not installed (the dev extra)")
    result = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_protobufs_are_touched_in_three_places_only() -> None:
    allowed = {"lucid_fx/tracing.py", "lucid_fx/graph_module.py"}
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if name in allowed or name.startswith("lucid_fx/ir/"):
            continue
        assert "onnx" not in imported(path), f"{name} imports onnx"


def test_passes_never_run_models() -> None:
    for path in sorted((ROOT / "passes").glob("*.py")):
        roots = imported(path)
        assert not roots & {"onnxruntime", "lucid_fx.runtime"}, path.name


def imported(path: Path) -> set[str]:
    """What a file imports: top-level packages, and lucid_fx's by their first two parts."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            parts = name.split(".")
            found.add(".".join(parts[:2]) if parts[0] == "lucid_fx" else parts[0])
    return found


def test_nothing_of_ours_is_imported_at_the_top_level() -> None:
    """`passes`, `runtime` and `models` exist under lucid_fx only, or state would be doubled."""
    code = (
        "import sys, lucid_fx, lucid_fx.cli\n"
        "print([n for n in ('passes', 'runtime', 'models') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def test_public_names_can_be_imported() -> None:
    for module in (lucid_fx, lucid_fx.quantization):
        for name in module.__all__:
            assert getattr(module, name, None) is not None, f"{module.__name__}.{name}"


@pytest.mark.parametrize("name", sorted(modules()))
def test_every_file_of_passes_has_a_test_file(name: str) -> None:
    if name in HELPERS:
        return
    test = ROOT / "tests" / "passes" / f"test_{name}.py"
    assert test.is_file(), f"{test.relative_to(ROOT)} is missing"
    text = test.read_text()
    assert text.startswith('"""'), f"{test.name} does not say what class of models it stands for"
    cls = next((c for c in graph_passes() if c.__module__.endswith(f".{name}")), None)
    if cls is not None:
        assert re.search(r"check_pass\(|\.run\(", text), f"{test.name} tests no rewrite"
        assert re.search(r"check_unchanged\(", text), f"{test.name} tests no refusal"


@pytest.mark.parametrize("cls", graph_passes(), ids=lambda cls: cls.__name__)
def test_every_pass_shows_before_and_after_and_what_stays(cls: type[GraphPass]) -> None:
    text = inspect.getdoc(cls) or ""
    assert "→" in text, f"{cls.__name__}: no before → after"
    assert re.search(r"\bstays?\b|get none|is not touched", text), f"{cls.__name__}: what stays?"
    assert cls.__module__.rpartition(".")[2] == re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__
    ).lower().replace("mat_mul", "matmul").replace("_q_linear", "_qlinear")


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_stay_short_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= ABOUT_300, f"{path.name} has {lines} lines"
    if path.parent.name == "passes" and "(GraphPass)" in text:
        assert lines <= ABOUT_150, f"pass {path.name} has {lines} lines"
    assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{path.name}: no docstring"
