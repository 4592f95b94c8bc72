"""Relu and ReLU6 behind an op whose output gets a grid that starts at zero."""

import numpy as np
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.ir.provenance import origins
from lucid_fx.passes.absorb_activation_range import AbsorbActivationRange

CONV = """g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {2}> {
    [conv] t = Conv (x, w)  [relu] y = Relu (t) }"""


def test_the_relu_goes_and_its_name_for_the_value_stays() -> None:
    """On positive numbers, where saturation at zero has nothing to do."""
    model = check_pass(
        CONV,
        AbsorbActivationRange(frozenset({"relu"})),
        """g (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {2}> {
            [conv] y = Conv (x, w) }""",
        feeds={"x": np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)},
        exact=True,
    )
    assert origins(model.graph.node(0)) == ("conv", "relu")
    assert ledger_of(model)["relu"].reason == "it is the range of conv's grid"


def test_a_relu_that_was_not_chosen_stays() -> None:
    check_unchanged(CONV, AbsorbActivationRange(frozenset({"another"})))
