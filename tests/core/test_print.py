"""str(gm): deterministic text with provenance that reads back; HTML for notebooks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from small_models import FASHION, branch, branch_feeds, fashion

import lucid_fx
from lucid_fx import models
from lucid_fx.graph_module import GraphModule
from lucid_fx.ir.printing import annotated_text, scope_text
from lucid_fx.ir.serde import from_text
from lucid_fx.ir.walk import nodes


@pytest.mark.parametrize("format", ["qoperator", "qdq"])
def test_it_reads_back_to_the_same_graph_and_numbers(format: lucid_fx.conversion.Format) -> None:
    feeds = fashion(4)
    module = lucid_fx.quantize(FASHION.path(), feeds, format=format)
    text = str(module)
    assert text == str(module)
    again = GraphModule(from_text(text))
    assert [n.name for n in nodes(again.model)] == [n.name for n in nodes(module.model)]
    image = feeds[0]["image"]
    # the text has nine digits of a scale
    np.testing.assert_allclose(again(image), module(image), rtol=1e-4, atol=1e-3)


def test_it_is_the_same_text_in_another_process_order() -> None:
    texts = {str(lucid_fx.quantize(FASHION.path(), fashion(4))) for _ in range(2)}
    assert len(texts) == 1


def test_each_node_that_a_pass_made_says_so() -> None:
    module = lucid_fx.quantize(FASHION.path(), fashion(4), format="qdq")
    lines = {line.strip() for line in str(module).splitlines()}
    made = [line for line in lines if line.endswith("# fuse-conv-batch-norm of proj1, 1.bp")]
    assert len(made) == 1
    assert not any("# " in line for line in str(lucid_fx.trace(FASHION.path())).splitlines())


def test_odd_names_and_bodies_survive() -> None:
    module = lucid_fx.quantize(branch(), branch_feeds(True, False))
    node = next(n for n in module.model.graph if n.metadata_props)
    node.name = 'a "quoted" # name'
    text = annotated_text(module.model)
    assert [n.name for n in nodes(from_text(text))] == [n.name for n in nodes(module.model)]
    assert any(line.lstrip().startswith('["a \\"quoted\\" # name"]') and "  # " in line
               for line in text.splitlines())  # fmt: skip


def test_a_scope() -> None:
    module = lucid_fx.fuse(models.get("byte_lm").path())
    lines = scope_text(module.model, "h1").splitlines()
    assert lines
    assert all("h1" in line for line in lines)
    assert len(lines) < sum(1 for _ in nodes(module.model))
    assert not scope_text(module.model, "nothing")


def test_without_weights_it_is_short() -> None:
    module = lucid_fx.trace(FASHION.path())
    short = annotated_text(module.model, weights=False)
    assert len(short) < len(annotated_text(module.model)) / 5
    assert isinstance(module.model, ir.Model)


def test_html() -> None:
    module = lucid_fx.quantize(FASHION.path(), fashion(4))
    page = module._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 3
    assert "computes on codes" in page
    assert "QLinearConv" in page
    assert "<script" not in page
    module.ledger.note("<b>")
    assert "<b>" not in module.ledger._repr_html_()
