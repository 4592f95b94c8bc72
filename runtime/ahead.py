"""Makes the next item of a stream while the last one is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The items in order; a thread of its own makes one more than was asked for.

    What the source raises is raised here, where its item would have come.
    """
    end = object()
    source = iter(items)
    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(next, source, end)
        while (item := coming.result()) is not end:
            coming = worker.submit(next, source, end)
            yield item  # type: ignore[misc]
