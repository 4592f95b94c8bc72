"""Every stage of two whole models as text: a change of a choice shows as a line that differs.

``pytest tests/golden --update-golden`` writes the files anew. Weights are not in them, and the
target is fixed, so that they are the same on every machine.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx_ir as ir
import pytest
from checks import lines

import lucid_fx
from lucid_fx.conversion import convert
from lucid_fx.models.zoo import get
from lucid_fx.prepared import PreparedModule

FOLDER = Path(__file__).parent
MODELS = ("fmnist_dw", "byte_lm")
TARGETS = ("cpu-avx512vnni", "cpu-avx2")


@cache
def prepared(name: str, target: str) -> PreparedModule:
    """Calibrated on eight samples; the choice of regions needs the shapes of one."""
    model = get(name)
    feeds = list(model.calibration(8))
    module = lucid_fx.prepare_fx(model.path(), example_inputs=feeds[0], target=target)
    return lucid_fx.calibrate(module, feeds)


def text_of(model: ir.Model) -> str:
    """One node a line, with its name at the end."""
    return "\n".join(what + name for what, name in lines(model.graph)) + "\n"


def compare(text: str, name: str, update: bool) -> None:
    path = FOLDER / f"{name}.txt"
    if update:
        path.write_text(text)
    assert path.is_file(), f"{path.name} is missing; run with --update-golden"
    assert text == path.read_text(), f"{path.name} differs; if that is meant, --update-golden"


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.mark.parametrize("name", MODELS)
def test_fused(name: str, update: bool) -> None:
    compare(text_of(lucid_fx.fuse(get(name).path()).model), f"{name}.fused", update)


@pytest.mark.parametrize("format", ["qdq", "qoperator"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_converted(name: str, target: str, format: str, update: bool) -> None:
    """Without the accuracy guard, which measures on the machine that the test runs on."""
    module = prepared(name, target)
    model = convert(module, module.plan, module.statistics(), format)  # type: ignore[arg-type]
    compare(text_of(model), f"{name}.{target}.{format}", update)
