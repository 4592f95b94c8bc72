"""Parts of a graph compute what the whole does, whatever is inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from checks import model_from, random_feed

from lucid_fx import models
from lucid_fx.ir.extraction import computed, extract, segments
from lucid_fx.runtime.segmented import SegmentedModel
from lucid_fx.runtime.session import Session
from lucid_fx.tracing import trace

DIAMOND = """g (float[2,3] x, bool c) => (float[2,3] z)
    <float two = {2}> {
    [a] a = Mul (x, two)
    [b] b = Relu (a)
    [if] d = If (c) <
        then_branch = t () => (float[2,3] p) { [p] p = Add (a, b) },
        else_branch = e () => (float[2,3] q) { [q] q = Sub (a, b) }>
    [z] z = Add (d, a)
    [unused] u = Neg (b)
}"""


def test_a_part_holds_only_what_it_needs() -> None:
    part = extract(model_from(DIAMOND), {}, ["b"])
    assert [node.name for node in part.graph] == ["a", "b"]
    assert [value.name for value in part.graph.inputs] == ["x"]
    assert list(part.graph.initializers) == ["two"]


def test_bodies_read_given_values() -> None:
    model = model_from(DIAMOND)
    feed = random_feed(model)
    part = extract(model, {"a": "a", "b": "b"}, ["d"])
    a = feed["x"] * 2
    b = np.maximum(a, 0)
    [d] = Session(part).run({"a": a, "b": b, "c": np.array(True)})
    np.testing.assert_array_equal(d, a + b)
    assert [node.name for node in part.graph] == ["if"]


def test_a_value_can_be_given_and_wanted() -> None:
    part = extract(model_from(DIAMOND), {"a": "other"}, ["a", "b"])
    one = np.ones((2, 3), np.float32)
    a, b = Session(part).run({"x": one, "other": -one})
    np.testing.assert_array_equal(a, 2 * one)
    np.testing.assert_array_equal(b, 0 * one)


def test_the_source_is_not_changed() -> None:
    model = model_from(DIAMOND)
    before = [node.name for node in model.graph]
    extract(model, {"a": "a"}, ["z"])
    assert [node.name for node in model.graph] == before
    assert [value.name for value in model.graph.outputs] == ["z"]


def test_no_node_is_in_two_stretches() -> None:
    model = model_from(DIAMOND)
    first, second = segments(model, [["b"], ["z"]])
    assert (first.given, set(first.across)) == (("x",), {"a", "b"})
    assert set(second.given) == {"a", "b", "c"}


def test_what_has_no_type_is_computed_again() -> None:
    model = model_from(DIAMOND)
    value = computed(model)["a"]
    value.type = None
    _, second = segments(model, [["b"], ["z"]])
    assert "x" in second.given
    assert "a" not in second.given


@pytest.mark.parametrize("name", ["fmnist_dw", "byte_lm"])
@pytest.mark.parametrize("width", [1, 7])
def test_stretches_compute_what_the_whole_does(name: str, width: int) -> None:
    example = models.get(name)
    model, feed = trace(example.path()).model, example.calibration(1)[0]
    names = [
        value.name or ""
        for node in model.graph
        for value in node.outputs
        if value.dtype == ir.DataType.FLOAT
    ]
    groups = [names[at : at + width] for at in range(0, len(names), width)]
    whole = Session(extract(model, {}, names), optimize=False).run(dict(feed))
    found: list[Any] = [
        array for group in SegmentedModel(model, groups).run(feed) for array in group
    ]
    for value, exact, given in zip(names, whole, found, strict=True):
        scale = float(np.abs(exact[np.isfinite(exact)]).max(initial=1e-6))
        np.testing.assert_allclose(given, exact, rtol=0, atol=1e-4 * scale, err_msg=value)
