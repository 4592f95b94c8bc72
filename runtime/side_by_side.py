"""Does small pieces of work in several threads, begun in order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")

_AHEAD = 2
"""Items drawn ahead for each thread, so that none waits while the next is made."""

_GRACE = 1.0
"""Seconds that an interrupted caller waits for what has been begun."""


def side_by_side(
    items: Iterable[T],
    work: Callable[[int, T], object],
    give_up: Callable[[int], object],
    threads: int,
) -> Iterator[int]:
    """Call ``work(number, item)`` for every item, at most ``threads`` at a time.

    The calling thread works too, and it alone draws the items. What the source raises, or an
    interrupt, is raised when the items drawn before are done; of work that failed, the first in
    order.

    Args:
        items: drawn a few ahead.
        work: may wait for items of lower numbers: they have been begun.
        give_up: called with the number of an item that failed, or 0 when all is interrupted; work
            on the items behind it must not wait for it any more.
        threads: at least 1.

    Yields:
        How many items are done: now and then, and at the end.
    """
    with _Workers(work, give_up, threads) as workers:
        try:
            for job in enumerate(items):
                workers.waiting.put(job)
                if workers.waiting.qsize() >= _AHEAD * threads and workers.do_one():
                    yield workers.done
                if workers.failed:
                    break
        finally:
            workers.finish()
    yield workers.done


class _Workers(Generic[T]):
    """The calling thread and its helpers; leaving the context ends them."""

    def __init__(
        self, work: Callable[[int, T], object], give_up: Callable[[int], object], threads: int
    ) -> None:
        self.waiting: SimpleQueue[tuple[int, T] | None] = SimpleQueue()
        self.failed: dict[int, BaseException] = {}
        self.done = 0
        self._work, self._give_up, self._counting = work, give_up, Lock()
        self._helpers = [Thread(target=self._help, daemon=True) for _ in range(threads - 1)]

    def __enter__(self) -> _Workers[T]:
        for helper in self._helpers:
            helper.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        with contextlib.suppress(Empty):  # what is left behind a failure
            while True:
                self.waiting.get_nowait()
        for _ in self._helpers:
            self.waiting.put(None)
        if kind is not None:  # this thread may have taken an item and been interrupted before it
            for helper in self._helpers:
                helper.join(_GRACE)
            self._give_up(0)
        for helper in self._helpers:
            helper.join()
        if self.failed:
            raise self.failed[min(self.failed)]

    def do_one(self) -> bool:
        """Do the next item in this thread; False when there is none."""
        try:
            job = self.waiting.get_nowait()
        except Empty:
            return False
        if job is not None:
            self._do(*job)
        return True

    def finish(self) -> None:
        """Do what is waiting, unless something failed."""
        while not self.failed and self.do_one():
            pass

    def _help(self) -> None:
        while (job := self.waiting.get()) is not None:
            self._do(*job)

    def _do(self, number: int, item: T) -> None:
        try:
            self._work(number, item)
        except BaseException as error:
            self.failed[number] = error
            self._give_up(number)
        else:
            with self._counting:
                self.done += 1
