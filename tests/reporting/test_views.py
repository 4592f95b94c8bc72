"""Views as data: nothing is lost, everything is linked, layouts are quick and layered."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import pytest

import lucid_fx
from lucid_fx import models
from lucid_fx.errors import ConfigError
from lucid_fx.reporting import page, views
from lucid_fx.reporting.views import Facts, layout, scope_of, view

sys.path.append(str(Path(__file__).resolve().parent))
from _graphs import blocks, fashion, tangled

NOTHING = Facts({}, {})


def test_every_node_is_in_every_level_exactly_once() -> None:
    exact, coded, _ = fashion()
    for module in (exact, coded, lucid_fx.trace(blocks(300)), lucid_fx.trace(tangled(300))):
        shown = view("any", module.model, NOTHING)
        assert [one["name"] for one in shown["nodes"]] == [n.name for n in module.model.graph]
        for level in shown["levels"]:
            members = sorted(i for group in level["members"] for i in group)
            assert members == list(range(len(shown["nodes"])))
            assert len(level["places"]) == len(level["names"]) == len(level["members"])
            beside = itertools.pairwise(sorted((y, x) for x, y in level["places"]))
            assert all(b[0] > a[0] or b[1] - a[1] > 0.999 for a, b in beside), "boxes overlap"


def test_every_quantized_node_has_a_partner_in_the_float_view() -> None:
    exact, coded, _ = fashion()
    floats = {o for n in view("float", exact.model, NOTHING)["nodes"] for o in n["origins"]}
    partners = {
        n["name"]: floats & {*n["origins"]} for n in view("q", coded.model, NOTHING)["nodes"]
    }
    alone = {name for name, found in partners.items() if not found}
    assert all("image" in name for name in alone), alone  # a graph input has no float node
    assert len(alone) <= 2


def test_edges_point_down_in_a_graph_without_cycles() -> None:
    shown = view("blocks", lucid_fx.trace(blocks(300)).model, NOTHING)["levels"][0]
    heights = [y for _, y in shown["places"]]
    assert shown["edges"]
    assert all(heights[a] < heights[b] for a, b in shown["edges"])


def test_a_constant_stands_beside_its_reader_and_a_sink_beside_its_maker() -> None:
    chain = [(i, i + 1) for i in range(10)]
    places = layout(13, [*chain, (11, 9), (2, 12)])
    assert places[11][1] == places[9][1] - 1
    assert places[12][1] == places[2][1] + 1


def test_a_cycle_of_scopes_is_laid_out_too() -> None:
    assert len(layout(3, [(0, 1), (1, 2), (2, 1)])) == 3
    assert layout(0, []) == []


def test_scopes_collapse_what_hangs_together() -> None:
    levels = view("blocks", lucid_fx.trace(blocks(300)).model, NOTHING)["levels"]
    assert [level["depth"] for level in levels] == [0, 1, 2, 3]
    sizes = [len(level["names"]) for level in levels]
    assert sizes[1] < sizes[2] < sizes[3] < sizes[0] == 300
    assert all(len(set(level["names"])) == len(level["names"]) for level in levels)
    assert scope_of("/encoder/layer.0/MatMul", 2) == "encoder/layer"
    assert scope_of("Conv", 1) == ""


def test_nodes_of_bodies_belong_to_the_node_that_holds_them() -> None:
    try:
        path = models.get("silero_vad").path()
    except models.FetchError as error:
        pytest.skip(str(error))
    model = lucid_fx.trace(str(path)).model
    shown = view("vad", model, NOTHING)["nodes"]
    named = {origin for one in shown for origin in one["origins"]}
    assert {node.name for graph in model.graph.subgraphs() for node in graph} <= named


def test_facts_of_several_sources_show_the_worst() -> None:
    exact, coded, _ = fashion()
    merged = next(n for n in coded.model.graph if len(views.origins(n)) > 1)
    first, second, *_ = views.origins(merged)
    facts = Facts({first: "quantized", second: "float"}, {first: 50.0, second: 20.0},
                  {merged.name or "": 7.0})  # fmt: skip
    told = {one["name"]: one for one in view("q", coded.model, facts)["nodes"]}[merged.name]
    assert (told["status"], told["error"], told["time"]) == ("float", 20.0, 7.0)
    assert exact.model is not coded.model


def test_five_thousand_nodes_are_laid_out_in_seconds() -> None:
    model = lucid_fx.trace(blocks(5000)).model
    begin = time.perf_counter()
    view("blocks", model, NOTHING)
    assert time.perf_counter() - begin < 8


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "igraph", None)
    with pytest.raises(ConfigError, match=r"igraph.*pip install 'lucid-fx\[report\]'"):
        page.library("igraph")
