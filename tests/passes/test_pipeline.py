"""Running passes in order: verification, the order of events, errors that say where."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir
import pytest
from checks import model_from

from lucid_fx.errors import ConfigError, VerifyError
from lucid_fx.passes import FLOAT, IMPORT
from lucid_fx.passes.eliminate_identity import EliminateIdentity
from lucid_fx.passes.pipeline import GraphPass, run_pipeline

CHAIN = "g (float[2] x) => (float[2] y) { [n] t = Identity (x)  [m] y = Neg (t) }"


@dataclass(frozen=True)
class LoseAName(GraphPass):
    """A pass that leaves an illegal graph."""

    def run(self, model: ir.Model) -> bool:
        model.graph.node(0).name = ""
        return True


@dataclass(frozen=True)
class Stumble(GraphPass):
    """A pass with a defect."""

    def run(self, model: ir.Model) -> bool:
        raise IndexError("list index out of range")


@dataclass(frozen=True)
class RefuseThis(GraphPass):
    """A pass that finds the user's request impossible."""

    def run(self, model: ir.Model) -> bool:
        raise ConfigError("that cannot be", node="n")


@dataclass(frozen=True)
class LoseAnOutput(GraphPass):
    """A pass that breaks the interface."""

    def run(self, model: ir.Model) -> bool:
        model.graph.node(0).outputs[0].name = "renamed"
        model.graph.node(1).outputs[0].name = "also renamed"
        return True


def test_the_name_of_a_pass_is_its_verb_phrase() -> None:
    assert LoseAName().name == "lose-aname"
    assert Stumble().name == "stumble"
    assert EliminateIdentity().name == "eliminate-identity"


def test_an_illegal_graph_is_blamed_on_the_pass_that_left_it() -> None:
    with pytest.raises(VerifyError, match=r"a Neg node has no name \(pass 'lose-aname'\)"):
        run_pipeline(model_from(CHAIN), (EliminateIdentity(), LoseAName()))


def test_a_crash_names_the_pass_and_those_that_ran_before() -> None:
    with pytest.raises(VerifyError) as caught:
        run_pipeline(model_from(CHAIN), (EliminateIdentity(), Stumble()))
    text = str(caught.value)
    assert "IndexError: list index out of range (pass 'stumble')" in text
    assert "passes already run: eliminate-identity" in text
    assert isinstance(caught.value.__cause__, IndexError)


def test_errors_that_are_meant_for_the_user_come_through() -> None:
    with pytest.raises(ConfigError, match="that cannot be"):
        run_pipeline(model_from(CHAIN), (RefuseThis(),))


def test_an_output_must_keep_its_name() -> None:
    with pytest.raises(VerifyError, match="'y'"):
        run_pipeline(model_from(CHAIN), (LoseAnOutput(),))


def test_after_each_pass_the_observer_is_told_whether_it_changed_anything() -> None:
    told: list[tuple[str, bool]] = []
    run_pipeline(
        model_from(CHAIN),
        (EliminateIdentity(), EliminateIdentity()),
        after=lambda graph_pass, model, changed: told.append((graph_pass.name, changed)),
    )
    assert told == [("eliminate-identity", True), ("eliminate-identity", False)]


def test_the_pipelines_settle() -> None:
    """Run twice, import and float passes change nothing more."""
    model = model_from(CHAIN)
    run_pipeline(model, (*IMPORT, *FLOAT))
    told: list[str] = []
    run_pipeline(model, (*IMPORT, *FLOAT), lambda p, m, changed: told.extend([p.name] * changed))
    assert told == []
