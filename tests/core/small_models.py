"""Small models and data that the tests of the workflow share."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from checks import model_from
from numpy.typing import NDArray

from lucid_fx import LucidFxWarning, models

FASHION = models.get("fmnist_dw")

ONES = ", ".join(["0.5"] * 144)
BRANCH = f"""g (bool c, float[1,4,16,16] x) => (float[1,4,16,16] y)
    <float[4,4,3,3] w = {{{ONES}}}> {{
    [outer] t = Conv <pads = [1,1,1,1]> (x, w)
    [choice] y = If (c) <
        then_branch = a () => (float[1,4,16,16] p) {{ [inner] p = Conv <pads = [1,1,1,1]> (t, w) }},
        else_branch = b () => (float[1,4,16,16] q) {{ [other] q = Conv <pads = [1,1,1,1]> (t, w) }}>
    }}"""
"""A Conv in the main graph, and one in each branch of an If."""

Feed = dict[str, NDArray]


def fashion(count: int) -> list[Feed]:
    """The first calibration samples of fmnist_dw."""
    return list(FASHION.calibration(count))


def branch() -> ir.Model:
    """`BRANCH` as a model nobody has prepared."""
    return model_from(BRANCH, prepare=False)


def branch_feeds(*taken: bool) -> list[Feed]:
    """A random image for each branch to take."""
    rng = np.random.default_rng(0)
    return [
        {"c": np.array(flag), "x": rng.standard_normal((1, 4, 16, 16)).astype(np.float32)}
        for flag in taken
    ]


def warned(call: Callable[[], object]) -> list[str]:
    """What lucid_fx warns of while something is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if issubclass(w.category, LucidFxWarning)]
