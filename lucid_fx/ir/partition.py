"""The cheapest way to colour a graph in two, by minimum cut.

Passes use it for choices where each node has a price in either state and each tensor has a
price when its producer and a consumer differ: integer or float (price: Q, DQ), channels last or
first (price: Transpose). Exact, because both prices are paid once a tensor (see "hyperedge").
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import networkx as nx

from lucid_fx.errors import VerifyError

FORBIDDEN = float("inf")
"""The price of a state that a node must not take."""


@dataclass(frozen=True)
class Tie:
    """A tensor between a producer and its consumers.

    Args:
        producer, consumers: keys of nodes.
        leave: price, once, if the producer is chosen and any consumer is not.
        enter: price, once, if the producer is not chosen and any consumer is.
    """

    producer: Hashable
    consumers: tuple[Hashable, ...]
    leave: float
    enter: float


def cheapest_choice(
    prices: Mapping[Hashable, tuple[float, float]], ties: Iterable[Tie]
) -> set[Hashable]:
    """The set of chosen nodes with the least total price; the smallest one among equals.

    Args:
        prices: for each node, the price of being chosen and of not being chosen
            (`FORBIDDEN` rules a state out).
        ties: tensors between nodes.
    """
    flow = nx.DiGraph()
    source, sink = ("source",), ("sink",)
    flow.add_nodes_from((source, sink))
    for key, (chosen, unchosen) in prices.items():
        _edge(flow, source, ("node", key), unchosen)
        _edge(flow, ("node", key), sink, chosen)
    for number, tie in enumerate(ties):
        producer = ("node", tie.producer)
        leaving, entering = ("leave", number), ("enter", number)
        _edge(flow, producer, leaving, tie.leave)
        _edge(flow, entering, producer, tie.enter)
        for consumer in tie.consumers:
            _edge(flow, leaving, ("node", consumer), FORBIDDEN)
            _edge(flow, ("node", consumer), entering, FORBIDDEN)
    try:
        residual = nx.algorithms.flow.preflow_push(flow, source, sink)
    except nx.NetworkXUnbounded:
        stuck = [key for key, price in prices.items() if price == (FORBIDDEN, FORBIDDEN)]
        either = f"{stuck[0]!r} cannot take either state" if stuck else ""
        which = either or "two rules exclude each other"
        raise VerifyError(f"no split satisfies all prices: {which}") from None
    reachable = _reachable(residual, source)
    return {key for key in prices if ("node", key) in reachable}


def _edge(flow: nx.DiGraph, start: Hashable, end: Hashable, price: float) -> None:
    if price <= 0:
        return
    if price == FORBIDDEN:
        flow.add_edge(start, end)  # networkx reads a missing capacity as infinite
    else:
        # whole numbers: with float capacities rounding leaves residuals that hide the cut
        flow.add_edge(start, end, capacity=max(1, round(price * 1000)))


def _reachable(residual: nx.DiGraph, source: Hashable) -> set[Hashable]:
    """What the source still reaches beside the flow: the smallest side of all cheapest cuts."""
    seen, stack = {source}, [source]
    while stack:
        for succ, edge in residual[stack.pop()].items():
            if succ not in seen and edge["capacity"] > edge["flow"]:
                seen.add(succ)
                stack.append(succ)
    return seen
