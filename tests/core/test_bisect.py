"""bisect() names the pass that moved the numbers; watching() and printing follow every pass."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
from small_models import FASHION, branch, branch_feeds, fashion

import lucid_fx
from lucid_fx import conversion, workflow
from lucid_fx.bisecting import bisect
from lucid_fx.errors import DataError
from lucid_fx.ir.walk import is_op, nodes
from lucid_fx.passes import FLOAT
from lucid_fx.passes.pipeline import GraphPass, watching

SAMPLES = fashion(8)


@dataclass(frozen=True)
class SpoilWeights(GraphPass):
    """Set the first weight that a Conv or QLinearConv reads to zero."""

    def run(self, model: ir.Model) -> bool:
        for node in nodes(model):
            if not is_op(node, "Conv") and node.op_type != "QLinearConv":
                continue
            for value in node.inputs:
                weight = value.const_value if value is not None else None
                if value is not None and weight is not None and len(weight.shape) == 4:
                    zeros = np.zeros_like(weight.numpy())
                    value.const_value = ir.tensor(zeros, name=value.name)
                    return True
        return False


def test_a_sound_pipeline_keeps_the_numbers() -> None:
    found = bisect(FASHION.path(), SAMPLES)
    assert found.first is None
    float_part = [e.sqnr_db for e in found.effects if e.stage == "fuse"]
    assert float_part
    assert all(ratio is not None and ratio > 100 for ratio in float_part)
    assert found.effects[-1].sqnr_db is not None
    assert found.effects[-1].sqnr_db > 20
    assert [e.pass_name for e in found.effects if e.error] == ["absorb-activation-range"]
    assert "every pass keeps" in found.text()


def test_a_wrong_float_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow, "FLOAT", (*FLOAT[:5], SpoilWeights(), *FLOAT[5:]))
    found = bisect(FASHION.path(), SAMPLES)
    assert found.first is not None
    assert (found.first.stage, found.first.pass_name) == ("fuse", "spoil-weights")


@pytest.mark.parametrize("format", ["qdq", "qoperator"])
def test_a_wrong_pass_of_the_conversion_is_named(
    monkeypatch: pytest.MonkeyPatch, format: conversion.Format
) -> None:
    right = conversion.convert_passes

    def wrong(*given: object) -> tuple[GraphPass, ...]:
        passes = right(*given)  # type: ignore[arg-type]
        at = 1 if format == "qdq" else len(passes) - 1
        return (*passes[:at], SpoilWeights(), *passes[at:])

    monkeypatch.setattr(conversion, "convert_passes", wrong)
    found = bisect(FASHION.path(), SAMPLES, format=format)
    assert found.first is not None
    assert (found.first.stage, found.first.pass_name) == ("convert", "spoil-weights")
    assert json.loads(found.to_json())["first"] == "spoil-weights"
    assert "spoil-weights" in found._repr_html_()


def test_bounds_and_bodies() -> None:
    assert bisect(FASHION.path(), SAMPLES, bound=100).first is not None
    assert bisect(branch(), branch_feeds(True, False, True)).first is None


def test_no_samples() -> None:
    with pytest.raises(DataError, match="no calibration samples"):
        bisect(FASHION.path(), [])


def test_watchers_see_every_pass_and_leave() -> None:
    seen: list[str] = []
    with watching(lambda graph_pass, model, changed: seen.append(graph_pass.name)):
        lucid_fx.fuse(FASHION.path())
    count = len(seen)
    assert [name for name in seen if name in {p.name for p in FLOAT}] == [p.name for p in FLOAT]
    lucid_fx.fuse(FASHION.path())
    assert len(seen) == count
