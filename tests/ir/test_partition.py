"""The minimum cut against every possible choice, on small random problems."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucid_fx.errors import VerifyError
from lucid_fx.ir.partition import FORBIDDEN, Tie, cheapest_choice

Prices = Mapping[int, tuple[float, float]]


def total(prices: Prices, ties: Sequence[Tie], chosen: frozenset[int]) -> float:
    """The definition: what a choice costs."""
    cost = sum(price[key not in chosen] for key, price in prices.items())
    for tie in ties:
        inside = [consumer in chosen for consumer in tie.consumers]
        if tie.producer in chosen and not all(inside):
            cost += tie.leave
        if tie.producer not in chosen and any(inside):
            cost += tie.enter
    return cost


def every_choice(prices: Prices) -> list[frozenset[int]]:
    sizes = range(len(prices) + 1)
    return [frozenset(c) for n in sizes for c in itertools.combinations(prices, n)]


PRICE = st.integers(0, 20).map(lambda n: n / 4)
STATE = st.one_of(
    st.tuples(PRICE, PRICE),
    st.tuples(st.just(FORBIDDEN), PRICE),
    st.tuples(PRICE, st.just(FORBIDDEN)),
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[int, tuple[float, float]], list[Tie]]:
    count = draw(st.integers(1, 7))
    prices = {key: draw(STATE) for key in range(count)}
    ties = []
    for producer in range(count):
        consumers = draw(st.lists(st.integers(0, count - 1), max_size=3, unique=True))
        ties.append(Tie(producer, tuple(consumers), draw(PRICE), draw(PRICE)))
    return prices, ties


@given(problems())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_no_choice_is_cheaper_and_none_as_cheap_is_smaller(
    problem: tuple[dict[int, tuple[float, float]], list[Tie]],
) -> None:
    prices, ties = problem
    best = min(total(prices, ties, choice) for choice in every_choice(prices))
    found = frozenset(key for key in cheapest_choice(prices, ties) if isinstance(key, int))
    assert total(prices, ties, found) == pytest.approx(best)
    for choice in every_choice(prices):
        if total(prices, ties, choice) == pytest.approx(best):
            assert len(found) <= len(choice)


def test_a_price_is_paid_once_for_all_consumers() -> None:
    """Three readers of one tensor share a Transpose: 1 + 3 · 0 is cheaper than 3 · 2."""
    prices = {"made": (FORBIDDEN, 0.0), **dict.fromkeys("abc", (0.0, 2.0))}
    assert cheapest_choice(prices, [Tie("made", ("a", "b", "c"), 0.0, 1.0)]) == {"a", "b", "c"}


def test_what_costs_the_same_is_left_alone() -> None:
    assert cheapest_choice({"a": (1.0, 1.0), "b": (0.0, 0.0)}, []) == set()


def test_prices_far_apart_do_not_hide_the_cut() -> None:
    """Float capacities left residuals between nodes of 1e7 and 1e-2 nanoseconds."""
    prices = {"big": (1e7 / 3, 1e7), "small": (0.01, 0.03), "end": (FORBIDDEN, 0.0)}
    ties = [Tie("big", ("small",), 1e6 / 7, 1e6 / 7), Tie("small", ("end",), 0.01, 0.01)]
    assert cheapest_choice(prices, ties) == {"big", "small"}


def test_a_node_that_may_take_neither_state_is_named() -> None:
    with pytest.raises(VerifyError, match="'stuck' cannot take either state"):
        cheapest_choice({"stuck": (FORBIDDEN, FORBIDDEN)}, [])


def test_rules_that_exclude_each_other_are_told() -> None:
    prices = {"a": (0.0, FORBIDDEN), "b": (FORBIDDEN, 0.0)}
    with pytest.raises(VerifyError, match="two rules exclude each other"):
        cheapest_choice(prices, [Tie("a", ("b",), FORBIDDEN, 0.0)])
