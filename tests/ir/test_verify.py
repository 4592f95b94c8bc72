"""Each rule of a legal graph, broken on purpose, and the text that says so."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest
from checks import model_from

from lucid_fx.errors import VerifyError
from lucid_fx.ir.verify import verify

CHAIN = "g (float[2] x) => (float[2] y) <float[2] w> { [n] t = Relu (x)  [m] y = Neg (t) }"
BRANCH = """g (bool c, float[2] x) => (float[2] y) {
    [if] y = If (c) <
        then_branch = a () => (float[2] u) { [p] u = Neg (x) },
        else_branch = b () => (float[2] v) { [q] v = Relu (x) }> }"""


def no_name(model: ir.Model) -> None:
    model.graph.node(0).name = ""


def same_node_name(model: ir.Model) -> None:
    model.graph.node(1).name = "n"


def same_value_name(model: ir.Model) -> None:
    model.graph.node(0).outputs[0].name = "y"


def wrong_order(model: ir.Model) -> None:
    first = model.graph.node(0)
    model.graph.remove(first)
    model.graph.append(first)


def dangling(model: ir.Model) -> None:
    model.graph.node(1).replace_input_with(0, ir.Value(name="nowhere"))


def lost_output(model: ir.Model) -> None:
    model.graph.outputs[0] = ir.Value(name="lost")


def unknown_domain(model: ir.Model) -> None:
    node = ir.node("Mystery", [model.graph.inputs[0]], domain="some.domain")
    node.name, node.outputs[0].name = "mystery", "m"
    model.graph.append(node)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (no_name, "a Relu node has no name"),
        (same_node_name, "two nodes have the same name (node 'n'"),
        (same_value_name, "value 'y' is defined twice (node 'm'"),
        (wrong_order, "input 't' is used before it is defined (node 'm'"),
        (dangling, "input 'nowhere' is used before it is defined (node 'm'"),
        (lost_output, "graph output 'lost' is not produced"),
        (unknown_domain, "domain 'some.domain' of Mystery is not imported (node 'mystery'"),
    ],
)
def test_a_broken_rule_is_told_with_the_node_and_the_pass(
    damage: Callable[[ir.Model], None], text: str
) -> None:
    model = model_from(CHAIN, prepare=False)
    damage(model)
    with pytest.raises(VerifyError) as caught:
        verify(model, "some-pass")
    assert text in str(caught.value)
    assert "pass 'some-pass'" in str(caught.value)
    assert str(caught.value).endswith("please report this defect")


def test_names_are_unique_across_bodies() -> None:
    model = model_from(BRANCH, prepare=False)
    bodies = [a.as_graph() for a in model.graph.node(0).attributes.values()]
    bodies[1].node(0).name = bodies[0].node(0).name
    with pytest.raises(VerifyError, match="two nodes have the same name"):
        verify(model)


def test_a_body_reaches_outer_values_but_not_the_other_way() -> None:
    model = model_from(BRANCH, prepare=False)
    verify(model)
    inner = model.graph.node(0).attributes["then_branch"].as_graph().node(0).outputs[0]
    reader = ir.node("Neg", [inner])
    reader.name, reader.outputs[0].name = "reader", "r"
    model.graph.append(reader)
    with pytest.raises(VerifyError, match="input 'u' is used before it is defined"):
        verify(model)


def test_legal_graphs_pass() -> None:
    for text in (CHAIN, BRANCH, "g (float[2] x) => (float[2] x) { }"):
        verify(model_from(text, prepare=False))
