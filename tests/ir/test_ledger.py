"""What became of every source node: recorded, merged, closed, printed, stored."""

from __future__ import annotations

import pytest
from checks import model_from

from lucid_fx.graph_module import clone_model
from lucid_fx.ir.ledger import NOT_LOOKED_AT, Ledger, ledger_of
from lucid_fx.ir.provenance import mark, origins
from lucid_fx.ir.walk import nodes

CHAIN = "g (float[2] x) => (float[2] y) { [n] t = Relu (x)  [m] y = Neg (t) }"


def test_every_node_has_an_entry_from_the_start() -> None:
    ledger = ledger_of(model_from(CHAIN))
    assert [(e.node, e.op_type, e.status, e.reason) for e in ledger] == [
        ("n", "Relu", "float", NOT_LOOKED_AT),
        ("m", "Neg", "float", NOT_LOOKED_AT),
    ]


def test_bodies_have_entries_too() -> None:
    ledger = ledger_of(
        model_from(
            """g (bool c, float[2] x) => (float[2] y) {
                [if] y = If (c) <
                    then_branch = a () => (float[2] u) { [p] u = Neg (x) },
                    else_branch = b () => (float[2] v) { [q] v = Relu (x) }> }"""
        )
    )
    assert {entry.node for entry in ledger} == {"if", "p", "q"}


def test_a_new_node_speaks_for_all_that_it_came_from() -> None:
    model = model_from(CHAIN)
    first, second = list(model.graph)
    mark(second, "some-pass", (first, second))
    assert origins(second) == ("n", "m")
    ledger_of(model).record(second, "quantized", "computes on codes", "later-pass")
    assert {e.status for e in ledger_of(model)} == {"quantized"}
    assert {e.pass_name for e in ledger_of(model)} == {"later-pass"}


def test_the_last_word_counts_and_unknown_nodes_are_ignored() -> None:
    model = model_from(CHAIN)
    ledger, node = ledger_of(model), model.graph.node(0)
    ledger.record(node, "float", "first", "a")
    ledger.record(node, "quantized", "second", "b")
    node.name = "never seen"
    ledger.record(node, "refused", "third", "c")
    assert (ledger["n"].status, ledger["n"].reason) == ("quantized", "second")
    assert len(ledger) == 2 and "never seen" not in ledger


def test_what_is_gone_without_a_word_was_folded() -> None:
    model = model_from(CHAIN)
    node = model.graph.node(1)
    node.replace_input_with(0, model.graph.inputs[0])
    model.graph.remove(model.graph.node(0), safe=True)
    ledger_of(model).close(model)
    assert ledger_of(model)["n"].status == "fused"
    assert ledger_of(model)["m"].status == "float"


def test_the_summary_counts_and_gives_the_commonest_reasons() -> None:
    model = model_from(CHAIN)
    ledger, (first, second) = ledger_of(model), nodes(model)
    ledger.record(first, "quantized", "computes on codes", "p")
    ledger.record(second, "float", "it has no kernel", "p")
    ledger.note("something was repaired")
    ledger.note("something was repaired")
    assert ledger.summary().splitlines() == [
        "    1 float",
        "    1 quantized",
        "         1 × Neg: it has no kernel",
        "note: something was repaired",
    ]


def test_json_reads_back() -> None:
    model = model_from(CHAIN)
    ledger = ledger_of(model)
    ledger.record(model.graph.node(0), "refused", 'a "quoted" reason\n', "p")
    ledger.note("ünïcode")
    again = Ledger.from_json(ledger.to_json())
    assert list(again) == list(ledger) and again.notes == ledger.notes


def test_a_clone_has_a_ledger_of_its_own() -> None:
    model = model_from(CHAIN)
    twin = clone_model(model)
    ledger_of(twin).record(twin.graph.node(0), "quantized", "only here", "p")
    assert ledger_of(model)["n"].status == "float"
    with pytest.raises(KeyError):
        ledger_of(model)["no such node"]
