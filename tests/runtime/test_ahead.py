"""ahead(): the same items in the same order, one of them made beforehand."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lucid_fx.runtime.ahead import ahead


def test_the_items_come_in_order() -> None:
    assert list(ahead(range(5))) == [0, 1, 2, 3, 4]
    assert list(ahead([])) == []
    assert list(ahead([None, None])) == [None, None]


def test_one_item_more_than_was_asked_for_is_made_in_another_thread() -> None:
    made: list[int] = []
    second = threading.Event()

    def source() -> Iterator[threading.Thread]:
        for at in range(4):
            made.append(at)
            if at == 1:
                second.set()
            yield threading.current_thread()

    items = ahead(source())
    assert next(items) is not threading.current_thread()
    assert second.wait(timeout=10)
    items.close()  # type: ignore[attr-defined]
    assert made == [0, 1]


def test_an_error_comes_where_its_item_would_have_come() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    items = ahead(source())
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)
