"""side_by_side(): every item once, begun in order, and nothing left running."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from lucid_fx.native.library import cores
from lucid_fx.runtime.side_by_side import side_by_side


def never(number: int) -> None:
    raise AssertionError(f"{number} was given up")


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 100])
def test_every_item_is_done_once_under_its_number(threads: int, n: int) -> None:
    done: list[tuple[int, str]] = []
    items = [str(i) for i in range(n)]
    counts = list(
        side_by_side(items, lambda *job: done.append(job), never, threads),
    )
    assert sorted(done) == list(enumerate(items))
    assert counts == sorted(counts) and counts[-1] == n


def test_work_really_runs_at_the_same_time_and_may_wait_for_lower_numbers() -> None:
    passed = [threading.Event() for _ in range(20)]
    meeting = threading.Barrier(2, timeout=10)  # the first two items only leave it together

    def work(number: int, _: int) -> None:
        if number < 2:
            meeting.wait()
        if number:
            assert passed[number - 1].wait(timeout=10)
        passed[number].set()

    assert list(side_by_side(range(20), work, never, 2))[-1] == 20


def test_only_the_caller_draws_and_not_far_ahead() -> None:
    drawn: list[threading.Thread] = []
    ahead: list[int] = []
    done: list[int] = []

    def source() -> Iterator[int]:
        for i in range(50):
            drawn.append(threading.current_thread())
            ahead.append(i - len(done))
            yield i

    list(side_by_side(source(), lambda number, _: done.append(number), never, 2))
    assert set(drawn) == {threading.current_thread()}
    assert max(ahead) <= 6  # four that wait, and one in each thread


@pytest.mark.parametrize("threads", [1, 2])
def test_what_the_source_raises_comes_when_the_items_before_are_done(threads: int) -> None:
    for error in (ValueError("broken"), KeyboardInterrupt()):
        done: list[int] = []

        def source(error: BaseException = error) -> Iterator[int]:
            yield from range(3)
            raise error

        with pytest.raises(type(error)):
            list(side_by_side(source(), lambda n, _, done=done: done.append(n), print, threads))
        assert sorted(done) == [0, 1, 2]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_first_failure_in_order_is_raised_and_nobody_waits_for_it(threads: int) -> None:
    begun: list[int] = []
    given_up: list[int] = []

    def work(number: int, _: int) -> None:
        begun.append(number)
        if number >= 4:
            while number > 4 and 4 not in given_up:
                time.sleep(0.001)
            raise ValueError(f"item {number}")

    with pytest.raises(ValueError, match="item 4"):
        list(side_by_side(range(1000), work, given_up.append, threads))
    assert 4 in given_up and len(begun) < 20


def test_nothing_goes_on_when_the_caller_stops_early() -> None:
    before = threading.active_count()
    counts = side_by_side(range(1000), lambda *_: None, lambda _: None, 2)
    next(counts)
    counts.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_cores() -> None:
    assert cores() >= 1
