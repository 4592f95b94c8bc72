"""diff(): every node of both graphs in exactly one category, with the pass that did it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from checks import model_from
from small_models import BRANCH, FASHION, branch, branch_feeds, fashion

import lucid_fx
from lucid_fx import models
from lucid_fx.diffing import GraphDiff, NodeChange, diff
from lucid_fx.errors import ModelError
from lucid_fx.ir.matching import graph_nodes

CHAIN = """g (float[2,4] x) => (float[2,4] z)
    <float[4,4] w = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}> {
    [relu] a = Relu (x)
    [product] b = MatMul (a, w)
    [tanh] z = Tanh (b)
}"""


def changed(a: str, b: str) -> GraphDiff:
    return diff(model_from(a, prepare=False), model_from(b, prepare=False))


def only(found: GraphDiff, kind: Any) -> NodeChange:
    [change] = found.of(kind)
    return change


def accounts_for_all(found: GraphDiff, a: ir.Model, b: ir.Model) -> None:
    for side, model in (("a", a), ("b", b)):
        told = [key for change in found.changes for key in getattr(change, side)]
        assert sorted(told) == sorted(graph_nodes(model)), side
        assert len(told) == len(set(told))


@pytest.mark.parametrize("name", list(models.MODELS))
def test_a_model_and_itself(name: str) -> None:
    try:
        path = models.get(name).path()
    except models.FetchError as error:
        if error.unreachable:
            pytest.skip(str(error))
        raise
    found = diff(path, path)
    assert not found
    assert "no difference" in found.text()
    assert {change.kind for change in found.changes} == {"same"}


@pytest.mark.parametrize("format", ["qoperator", "qdq"])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if m.shipped else pytest.mark.fetched)
             for n, m in models.MODELS.items()]
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::lucid_fx.errors.LucidFxWarning")
def test_float_and_converted_account_for_every_node(name: str, format: Any, tmp_path: Path) -> None:
    example = models.get(name)
    module = lucid_fx.quantize(example.path(), example.calibration(1), format=format)
    module.save(tmp_path / "int8.onnx")
    from lucid_fx.ir.serde import load_model

    a, b = load_model(example.path()), load_model(tmp_path / "int8.onnx")
    found = diff(example.path(), tmp_path / "int8.onnx")
    accounts_for_all(found, a, b)
    assert found.of("rewritten")
    assert all(change.passes for change in (*found.of("rewritten"), *found.of("added")))
    assert all(change.passes for change in found.of("removed") if change.a_ops == ("Constant",))
    assert found.grids or name in ("minilm_l3", "byte_lm")


class TestKinds:
    def test_added_and_removed(self) -> None:
        more = CHAIN.replace("[tanh] z = Tanh (b)", "[tanh] c = Tanh (b) [abs] z = Abs (c)")
        assert only(changed(CHAIN, more), "added").b == ("abs",)
        assert only(changed(more, CHAIN), "removed").a == ("abs",)

    def test_moved(self) -> None:
        """Relu behind the product instead of in front of it."""
        other = CHAIN.replace("Relu (x)", "Relu (b)").replace("MatMul (a, w)", "MatMul (x, w)")
        other = other.replace("Tanh (b)", "Tanh (a)")
        swapped = other.splitlines()
        swapped[2], swapped[3] = swapped[3], swapped[2]
        found = changed(CHAIN, "\n".join(swapped))
        assert {change.a for change in found.of("moved")} == {("relu",), ("product",), ("tanh",)}
        assert not found.of("added") and not found.of("removed")

    def test_another_attribute_and_another_op_are_rewritten(self) -> None:
        leaky = CHAIN.replace("Relu (x)", "LeakyRelu <alpha = 0.1> (x)")
        assert only(changed(CHAIN, leaky), "rewritten").b_ops == ("LeakyRelu",)
        other = leaky.replace("0.1", "0.2")
        assert "alpha" in only(changed(leaky, other), "rewritten").details

    def test_another_weight_is_told(self) -> None:
        found = changed(CHAIN, CHAIN.replace("{1,0,0,0,0,1", "{1,0,0,0,0,7"))
        assert only(found, "rewritten").details == "input 1 has other values"

    def test_names_do_not_matter_where_the_structure_tells(self) -> None:
        renamed = CHAIN
        for old, new in (("[relu]", "[n0]"), ("[product]", "[n1]"), ("[tanh]", "[n2]"),
                         ("a = ", "v = "), ("(a, w)", "(v, w)"), ("b = ", "u = "),
                         ("(b)", "(u)")):  # fmt: skip
            renamed = renamed.replace(old, new)
        found = changed(CHAIN, renamed)
        assert [(c.kind, c.a, c.b) for c in found.changes] == [
            ("same", ("relu",), ("n0",)),
            ("same", ("product",), ("n1",)),
            ("same", ("tanh",), ("n2",)),
        ]

    def test_nodes_of_bodies(self) -> None:
        other = BRANCH.replace("[inner] p = Conv <pads = [1,1,1,1]> (t, w)", "[inner] p = Relu (t)")
        change = only(changed(BRANCH, other), "rewritten")
        assert (change.a, change.b_ops) == (("inner",), ("Relu",))

    def test_interface_and_grids(self) -> None:
        module = lucid_fx.quantize(branch(), branch_feeds(True, False))
        found = diff(branch(), module)
        assert any(line.startswith("operator set") for line in found.interface) or found.grids
        assert found.grids
        assert all(grid.a is None and grid.b is not None for grid in found.grids)

    def test_passes_are_named(self) -> None:
        found = diff(FASHION.path(), lucid_fx.quantize(FASHION.path(), fashion(4)))
        conv = next(change for change in found.changes if "conv0" in change.a)
        assert conv.kind == "rewritten"
        assert set(conv.a) == {"conv0", "0.bn", "relu0"}
        assert "assign-channels-last" in conv.passes


def test_five_thousand_nodes_take_seconds() -> None:
    value, nodes = "x", []
    for at in range(5000):
        op = ("Relu", "Tanh", "Abs", "Neg")[at * 7 % 4]
        nodes.append(onnx.helper.make_node(op, [value], [f"v{at}"]))
        value = f"v{at}"
    kinds = [onnx.helper.make_tensor_value_info(n, 1, [4]) for n in ("x", value)]
    graph = onnx.helper.make_graph(nodes, "long", kinds[:1], kinds[1:])
    a = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    b = onnx.ModelProto()
    b.CopyFrom(a)
    for node in b.graph.node:  # nothing but structure is left to go by
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = f"other_{name}" if name.startswith("v") and name != value else name
    del b.graph.node[2500:2501]
    b.graph.node[2500].input[0] = b.graph.node[2499].output[0]
    start = time.perf_counter()
    found = diff(a, b)
    assert time.perf_counter() - start < 10
    assert len(found.of("removed")) - len(found.of("added")) == 1
    assert len(found.of("same")) > 4900


def test_external_data_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.load(FASHION.path()), path, save_as_external_data=True, location="weights",
              size_threshold=0)  # fmt: skip
    (tmp_path / "weights").unlink()
    assert not diff(path, path)
    with pytest.raises(ModelError, match="no file"):
        diff(tmp_path / "none.onnx", path)


def test_json_text_and_html() -> None:
    found = changed(CHAIN, CHAIN.replace("Relu", "Abs"))
    report = json.loads(found.to_json())
    assert report["counts"]["rewritten"] == 1
    assert report["changes"][0]["a"] == ["relu"]
    assert "relu (Relu)" in found.text()
    assert "relu (Relu)" in found._repr_html_()
