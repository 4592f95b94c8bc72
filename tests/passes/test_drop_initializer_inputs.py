"""Weights that are graph inputs with a default, as files of IR version 3 must have them."""

import numpy as np
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.drop_initializer_inputs import DropInitializerInputs


def test_an_input_with_a_default_becomes_a_constant() -> None:
    model = check_pass(
        "g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }",
        DropInitializerInputs(),
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }",
        feeds={"x": np.ones(2, np.float32), "w": np.array([1, 2], np.float32)},
        exact=True,
    )
    assert ledger_of(model).notes == ["graph inputs with a default became constants: w"]


def test_an_input_without_a_default_stays() -> None:
    check_unchanged(
        "g (float[2] x, float[2] w) => (float[2] y) { y = Add (x, w) }", DropInitializerInputs()
    )
