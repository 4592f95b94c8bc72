"""Runs calibration samples through a prepared model; small ones side by side."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator

import numpy as np

from lucid_fx.errors import ModelError, NativeLibraryError
from lucid_fx.feeds import Feed
from lucid_fx.native.lanes import Lanes
from lucid_fx.native.library import cores
from lucid_fx.prepared import PreparedModule

SMALL_BYTES, MOST_AT_ONCE = 8 * 2**20, 4
"""Samples whose observed values are no bigger than this run side by side, at most so many: one
thread for each is faster than threads that share the work of one, and the memory is bounded."""


def record(prepared: PreparedModule, feeds: Iterable[Feed]) -> Generator[int]:
    """Run samples in order, so that the statistics are the same however many run at a time.

    Yields:
        How many are done: now and then, and at the end.
    """
    remaining = iter(feeds)
    for number, feed in enumerate(remaining):
        if number < 2 and may_run_side_by_side(prepared, feed):
            with prepared.lanes(min(cores(), MOST_AT_ONCE)) as lanes:
                if lanes is not None:
                    rest = itertools.chain([feed], remaining)
                    yield from (number + done for done in _together(prepared, lanes, rest))
                    return
        prepared._run(feed)
        yield number + 1


def may_run_side_by_side(prepared: PreparedModule, feed: Feed) -> bool:
    """Whether samples like this one are small, and every observer is one tap that sees each once.

    What a sample holds is told by its shapes, or by the samples before: False without any.
    """
    if not prepared.taps_once or not all(_is_numeric(x) for x in feed.values()):
        return False
    elements = prepared.observed_elements
    size = elements * np.dtype(np.float32).itemsize + sum(x.nbytes for x in feed.values())
    return elements > 0 and size <= SMALL_BYTES


def _together(prepared: PreparedModule, lanes: Lanes, feeds: Iterable[Feed]) -> Iterator[int]:
    try:
        with lanes:
            for feed in feeds:
                prepared.keep(feed)
                if not lanes.put(feed):
                    break
                yield lanes.done
            try:
                lanes.finish()
            except NativeLibraryError as error:
                raise ModelError(f"onnxruntime failed to run the model: {error}") from None
            yield lanes.done
    finally:
        prepared.samples += lanes.done


def _is_numeric(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind not in "OSU"
