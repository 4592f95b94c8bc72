"""Let observers read the blocked layout in which onnxruntime keeps the results of its Convs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from lucid_fx.ir.walk import attribute, graphs, is_op, only_consumer
from lucid_fx.passes.insert_observers import DOMAIN
from lucid_fx.passes.pipeline import GraphPass

BLOCKED_DOMAIN = "com.microsoft.nchwc"

MOST_IN_BLOCK = 16
"""Channels in a block: 8 or 16, by machine. Where they do not divide, the last one is padded."""


@dataclass(frozen=True)
class TapBlockedLayout(GraphPass):
    """Drop each ReorderOutput that only serves an observer to whom the order does not matter.

    For the graph that onnxruntime made of one with taps. ``r = ReorderOutput <channels = 32> (b)``,
    ``_ = Observe (r)`` → ``_ = Observe (b)``: the same elements in another order, which ranges and
    histograms of a whole tensor do not see. Ranges per channel and padded blocks stay as they are.
    The taps end up behind the graph again, the last first, as `InsertObservers` puts them.
    """

    def run(self, model: ir.Model) -> bool:
        """Rewrite in place; whether any was dropped."""
        changed = False
        for graph in list(graphs(model)):
            taps = [node for node in graph if is_op(node, "Observe", domain=DOMAIN)]
            for tap in taps:
                changed |= _read_blocked(tap)
            graph.remove(taps)
            graph.extend(reversed(taps))
        return changed


def _read_blocked(tap: ir.Node) -> bool:
    observed = tap.inputs[0]
    reorder = None if observed is None else observed.producer()
    if observed is None or reorder is None or reorder.graph is None:
        return False
    if not is_op(reorder, "ReorderOutput", domain=BLOCKED_DOMAIN) or "ch_axis" in tap.attributes:
        return False
    padded = attribute(reorder, "channels", 1) % MOST_IN_BLOCK != 0
    if padded or only_consumer(observed) is not tap:
        return False
    tap.replace_input_with(0, reorder.inputs[0])
    reorder.graph.remove(reorder, safe=True)
    return True
