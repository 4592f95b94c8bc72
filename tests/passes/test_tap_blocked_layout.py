"""Observers behind a change of layout that only they ask for."""

from __future__ import annotations

import pytest
from checks import HEADER, check_pass, check_unchanged, model_from

from lucid_fx.native.library import load
from lucid_fx.passes.tap_blocked_layout import TapBlockedLayout

DOMAINS = HEADER.replace("]>", ', "lucid_fx" : 1, "com.microsoft.nchwc" : 1]>')
OBSERVE = 'lucid_fx.Observe <key = "test/blocked", kind = "histogram"'


def graph(
    channels: int = 32, more: str = "", outputs: str = "float[1,n,4,4] y", then: str = ""
) -> str:
    return f"""{DOMAINS} g (float[1,{channels},4,4] x) => ({outputs}) {{
        b = com.microsoft.nchwc.ReorderInput (x)
        r = com.microsoft.nchwc.ReorderOutput <channels = {channels}> (b)
        c = Relu (b)
        y = com.microsoft.nchwc.ReorderOutput <channels = {channels}> (c)
        {then}
        o = {OBSERVE}{more}> (r) }}"""


@pytest.mark.skipif(load() is None, reason="no C++ compiler here, so no native library to run it")
def test_it_reads_the_blocks() -> None:
    check_pass(
        graph(),
        TapBlockedLayout(),
        f"""{DOMAINS} g (float[1,32,4,4] x) => (float[1,n,4,4] y) {{
            b = com.microsoft.nchwc.ReorderInput (x)
            c = Relu (b)
            y = com.microsoft.nchwc.ReorderOutput <channels = 32> (c)
            o = {OBSERVE}> (b) }}""",
        exact=True,
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (graph(channels=24), "blocks of 16 would be padded, and the padding counted"),
        (graph(more=", ch_axis = 1"), "channels are told apart"),
        (graph(outputs="float[1,n,4,4] y, float[1,n,4,4] r"), "it is an output as well"),
        (graph(then="s = Neg (r)", outputs="float[1,n,4,4] y, float[1,n,4,4] s"), "another reads"),
    ],
)
def test_it_keeps_the_usual_layout(text: str, why: str) -> None:
    check_unchanged(text, TapBlockedLayout())


def test_the_last_tap_stays_first() -> None:
    model = model_from(f"""{DOMAINS} g (float[2] x) => (float[2] y) {{
        o = lucid_fx.Observe <key = "1", kind = "minmax"> (x)
        t = Neg (x)
        p = lucid_fx.Observe <key = "2", kind = "minmax"> (t)
        y = Relu (t) }}""")
    assert not TapBlockedLayout().run(model)
    assert [node.outputs[0].name for node in model.graph] == ["t", "y", "p", "o"]
