"""From a text detector's probability map to boxes, and how well boxes match the truth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.models.rendering import Box

_PIXEL = 0.3  # a pixel above this belongs to text
_REGION = 0.5  # a region with a lower mean is dropped
_GROWTH = 1.6  # the map shows shrunk text; boxes grow back by area * this / perimeter
_SMALLEST = 3


def text_boxes(probability: NDArray[Any]) -> list[Box]:
    """Find the upright boxes of text in a map [height, width]."""
    mask = probability > _PIXEL
    boxes = []
    for left, top, right, bottom in _regions(mask):
        width, height = right - left, bottom - top
        if min(width, height) < _SMALLEST:
            continue
        inside = mask[top:bottom, left:right]
        if probability[top:bottom, left:right][inside].mean() < _REGION:
            continue
        grow = width * height * _GROWTH / (2 * (width + height))
        boxes.append((left - grow, top - grow, right + grow, bottom + grow))
    return boxes


def _regions(mask: NDArray[np.bool_]) -> list[tuple[int, int, int, int]]:
    """Give the extents of the connected regions of a mask (corners touch), run by run."""
    rows, starts, ends = _runs(mask)
    parent = np.arange(len(rows))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = int(parent[index])
        return index

    first = np.searchsorted(rows, np.arange(len(mask) + 1))
    for row in range(1, len(mask)):
        above, here = int(first[row - 1]), int(first[row])
        while above < first[row] and here < first[row + 1]:
            if starts[above] <= ends[here] and starts[here] <= ends[above]:
                parent[root(here)] = root(above)
            if ends[above] < ends[here]:
                above += 1
            else:
                here += 1
    roots = np.array([root(index) for index in range(len(rows))], dtype=int)
    return [
        (
            int(starts[members].min()),
            int(rows[members].min()),
            int(ends[members].max()),
            int(rows[members].max()) + 1,
        )
        for members in (np.flatnonzero(roots == label) for label in np.unique(roots))
    ]


def _runs(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], ...]:
    """Give row, start and end of every horizontal run of a mask, in reading order."""
    padded = np.pad(mask, ((0, 0), (1, 1))).astype(np.int8)
    change = np.diff(padded, axis=1)
    rows, starts = np.nonzero(change == 1)
    ends = np.nonzero(change == -1)[1]
    return rows, starts, ends


def match_overlaps(found: Sequence[Box], truth: Sequence[Box]) -> list[float]:
    """Pair found and true boxes, the best overlap first, each box once; give the overlaps."""
    pairs = [
        (overlap, i, j)
        for i, box in enumerate(found)
        for j, other in enumerate(truth)
        if (overlap := _overlap(box, other)) > 0
    ]
    used_found: set[int] = set()
    used_truth: set[int] = set()
    overlaps = []
    for overlap, i, j in sorted(pairs, reverse=True):
        if i not in used_found and j not in used_truth:
            used_found.add(i)
            used_truth.add(j)
            overlaps.append(overlap)
    return overlaps


def _overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    common = width * height
    both = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return common / (both - common)
