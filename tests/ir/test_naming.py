"""Fresh names, scopes, and suggestions for misspelt names."""

from __future__ import annotations

import pytest
from checks import model_from

from lucid_fx.ir.naming import Names, in_scope, near_matches


def test_fresh_names_avoid_every_name_of_every_body() -> None:
    names = Names(
        model_from(
            """g (bool c, float[2] x) => (float[2] y) <float[2] w = {1, 2}> {
                [if] y = If (c) <
                    then_branch = a () => (float[2] u) { [p] u = Mul (x, w) },
                    else_branch = b () => (float[2] v) { [q] v = Relu (x) }> }"""
        )
    )
    for taken in ("c", "x", "y", "w", "u", "v", "p", "q", "if"):
        assert names.fresh(taken) == f"{taken}_1"
    assert [names.fresh("new") for _ in range(3)] == ["new", "new_1", "new_2"]


@pytest.mark.parametrize(
    ("name", "scope", "inside"),
    [
        ("/encoder/layer.0/MatMul", "encoder", True),
        ("/encoder/layer.0/MatMul", "/encoder", True),
        ("/encoder/layer.0/MatMul", "encoder/layer.0", True),
        ("encoder.layer.0.MatMul", "encoder.layer", True),
        ("encoder.layer.0.MatMul", "encoder.layer.0.MatMul", True),
        ("/fc", "fc", True),
        ("encoder2.MatMul", "encoder", False),
        ("my.encoder.MatMul", "encoder", False),
        ("fc", "fc.weight", False),
    ],
)
def test_scopes_are_told_by_slashes_and_dots(name: str, scope: str, inside: bool) -> None:
    assert in_scope(name, scope) is inside


def test_near_matches_are_suggested() -> None:
    assert near_matches("fc_1", ["fc1", "conv1"]) == "did you mean 'fc1'?"


def test_without_a_near_match_the_first_names_are_shown() -> None:
    assert near_matches("zzz", ["b", "a"]) == "known are 'a', 'b'"
    assert near_matches("zzz", "dcba") == "known are 'a', 'b', 'c', …"
    assert near_matches("zzz", []) == "known are none"
