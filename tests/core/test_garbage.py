"""only_new_garbage(): the collector is as it was afterwards, whatever happens."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from lucid_fx.garbage import only_new_garbage


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_new_garbage_is_collected_and_old_objects_are_let_alone() -> None:
    old, new = Cycle(), None
    old_alive = weakref.ref(old)
    with only_new_garbage():
        new = Cycle()
        new_alive = weakref.ref(new)
        del old, new
        gc.collect()
        assert new_alive() is None
        assert old_alive() is not None
    gc.collect()
    assert old_alive() is None


def test_an_error_thaws_too() -> None:
    with pytest.raises(ValueError, match="broken"), only_new_garbage():
        raise ValueError("broken")
    assert gc.get_freeze_count() == 0


def test_what_somebody_else_froze_stays_frozen() -> None:
    gc.freeze()
    with only_new_garbage():
        pass
    assert gc.get_freeze_count() > 0
