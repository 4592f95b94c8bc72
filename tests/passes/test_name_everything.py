"""Names: models from exporters that leave nodes unnamed or name two things alike."""

import onnx_ir as ir
from checks import check_pass, check_unchanged, model_from

from lucid_fx.ir.verify import verify
from lucid_fx.passes.name_everything import NameEverything


def test_unnamed_nodes_are_named_after_their_outputs() -> None:
    check_pass(
        "g (float[2] x) => (float[2] y) { a = Relu (x)  y = Neg (a) }",
        NameEverything(),
        "g (float[2] x) => (float[2] y) { [Relu_a] a = Relu (x)  [Neg_y] y = Neg (a) }",
        exact=True, prepare=False,
    )  # fmt: skip


def test_bodies_share_the_name_space_of_the_main_graph() -> None:
    check_pass(
        """g (bool c, float[2] x) => (float[2] y) {
            [n] t = Relu (x)
            y = If (c) <
                then_branch = a () => (float[2] u) { [n] u = Neg (t) },
                else_branch = b () => (float[2] u) { u = Identity (t) }> }""",
        NameEverything(),
        """g (bool c, float[2] x) => (float[2] y) {
            [n] t = Relu (x)
            [If_y] y = If (c) <
                then_branch = a () => (float[2] u) { [n_1] u = Neg (t) },
                else_branch = b () => (float[2] u_1) { [Identity_u_1] u_1 = Identity (t) }> }""",
        exact=True, prepare=False,
    )  # fmt: skip


def test_an_inner_value_gives_way_to_a_name_of_the_interface() -> None:
    """A value inside a body may be called like a graph input, which must keep its name."""
    check_pass(
        """g (bool c, float[2] x) => (float[2] y) {
            [if] y = If (c) <
                then_branch = a () => (float[2] y) { [p] y = Neg (x) },
                else_branch = b () => (float[2] v) { [q] v = Relu (x) }> }""",
        NameEverything(),
        """g (bool c, float[2] x) => (float[2] y) {
            [if] y = If (c) <
                then_branch = a () => (float[2] y_1) { [p] y_1 = Neg (x) },
                else_branch = b () => (float[2] v) { [q] v = Relu (x) }> }""",
        exact=True, prepare=False,
    )  # fmt: skip


def test_odd_but_unique_names_stay() -> None:
    model = model_from("g (float[2] x) => (float[2] y) { [n] t = Relu (x) [m] y = Neg (t) }")
    first, second = list(model.graph)
    first.name, first.outputs[0].name, second.name = "/a/b//", "Ünï cöde:0", "x"
    assert not NameEverything().run(model)
    assert (first.name, first.outputs[0].name, second.name) == ("/a/b//", "Ünï cöde:0", "x")


def test_an_omitted_output_stays_omitted() -> None:
    """An empty name means that an optional output is not asked for."""
    model = model_from("g (float[2] x) => (float[2] y) { [d] y = Relu (x) }")
    node = model.graph.node(0)
    node.resize_outputs(2)
    node.outputs[1].name = ""
    assert not NameEverything().run(model)
    assert node.outputs[1].name == ""


def test_values_without_any_name_get_one() -> None:
    model = model_from("g (float[2] x) => (float[2] y) { [n] t = Relu (x) [m] y = Neg (t) }")
    node = model.graph.node(0)
    node.outputs[0].name, node.name = None, ""
    assert NameEverything().run(model)
    verify(model)
    assert isinstance(node, ir.Node) and node.outputs[0].name and node.name


def test_unique_names_stay() -> None:
    check_unchanged(
        "g (float[2] x) => (float[2] y) { [n] t = Relu (x) [m] y = Neg (t) }",
        NameEverything(),
        prepare=False,
    )
