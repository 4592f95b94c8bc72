"""The three PP-OCR models: text recognition, line direction, text detection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.errors import ModelError
from lucid_fx.models.base import Evaluation, Feed, LazyFeeds, RealModel, Run
from lucid_fx.models.detection import match_overlaps, text_boxes
from lucid_fx.models.fetching import Wheel, WheelFile
from lucid_fx.models.rendering import (
    Box,
    Line,
    Page,
    Picture,
    random_line,
    random_page,
    resize,
)

_WHEEL = Wheel(
    "rapidocr-onnxruntime",
    "1.4.4",
    (
        WheelFile(
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
            "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        ),
        WheelFile(
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        ),
        WheelFile(
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
            "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        ),
    ),
)
_HEIGHT, _DIRECTION_WIDTH = 48, 192
_CALIBRATION, _EVALUATION = 1, 2  # streams of random numbers that never meet
_PAGES = ((480, 640), (640, 480), (640, 640))  # height and width, multiples of 32


def _tensor(picture: Picture) -> NDArray[np.float32]:
    """Scale to [-1, 1] and put channels first."""
    scaled = (picture.astype(np.float32) / 255 - 0.5) / 0.5
    return np.ascontiguousarray(scaled.transpose(2, 0, 1)[np.newaxis])


def _line(stream: int, seed: int, index: int) -> Line:
    random = np.random.default_rng([seed, stream, index])
    return random_line(random, held_out=stream == _EVALUATION)


def _scaled_width(picture: Picture) -> int:
    height, width = picture.shape[:2]
    return math.ceil(_HEIGHT * int(width) / int(height))


class RecognitionModel(RealModel):
    """Reads a line of text; the score is the character error rate."""

    _lines = 600  # the share of right lines is then known to 1.6 points; of 100, to 4

    def calibration(self, samples: int = 64, seed: int = 0) -> Sequence[Feed]:
        """Give lines of words that evaluation does not use; the widths differ."""
        return LazyFeeds(samples, lambda i: self._feed(_line(_CALIBRATION, seed, i)))

    def evaluation(self, limit: int | None = None) -> Evaluation[str]:
        """Give 600 lines and their texts."""
        lines = [_line(_EVALUATION, 0, i) for i in range(self._lines)[:limit]]
        feeds = LazyFeeds(len(lines), lambda i: self._feed(lines[i]))
        return Evaluation(feeds, [line.text for line in lines])

    def score(
        self, run: Run, *, limit: int | None = None, reference: Run | None = None
    ) -> dict[str, float]:
        """Score the character error rate and the share of lines without any error."""
        characters = _characters(self.path())
        errors = length = right = 0
        evaluation = self.evaluation(limit)
        for feed, text in evaluation:
            read = _decode(run(feed)[0][0], characters)
            errors += edit_distance(read, text)
            length += len(text)
            right += read == text
        return {"cer": errors / length, "line_accuracy": right / len(evaluation)}

    def latency_feeds(self) -> list[Feed]:
        """Give four lines."""
        return list(self.evaluation(4).feeds)

    @staticmethod
    def _feed(line: Line) -> Feed:
        return {"x": _tensor(resize(line.picture, _HEIGHT, _scaled_width(line.picture)))}


@cache
def _characters(path: Path) -> tuple[str, ...]:
    """Give the characters by class: the blank, those of the model's metadata, the space."""
    import onnx_ir

    listed = onnx_ir.load(path).metadata_props.get("character")
    if listed is None:
        raise ModelError(f"{path.name} has no metadata key 'character'")
    return ("", *listed.split("\n"), " ")


def _decode(probability: NDArray[Any], characters: Sequence[str]) -> str:
    """Decode greedily: the best class a step, repeats merged, blanks and outer spaces dropped."""
    best = probability.argmax(axis=-1)
    kept = best[np.flatnonzero(np.diff(best, prepend=-1))]
    return "".join(characters[index] for index in kept).strip()


def edit_distance(a: str, b: str) -> int:
    """Count the insertions, deletions and replacements that turn ``a`` into ``b``."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        corner, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            best = min(row[j] + 1, row[j - 1] + 1, corner + (left != right))
            corner, row[j] = row[j], best
    return row[-1]


class DirectionModel(RealModel):
    """Tells a line from one upside down; the score is the accuracy."""

    _lines = 200

    def calibration(self, samples: int = 64, seed: int = 0) -> Sequence[Feed]:
        """Give lines, every other one upside down."""
        return LazyFeeds(
            samples, lambda i: self._feed(_line(_CALIBRATION, seed, i), upside_down=i % 2 == 1)
        )

    def evaluation(self, limit: int | None = None) -> Evaluation[int]:
        """Give 200 lines, every other one upside down (class 1)."""
        indices = range(self._lines)[:limit]
        feeds = [self._feed(_line(_EVALUATION, 1, i), upside_down=i % 2 == 1) for i in indices]
        return Evaluation(feeds, [i % 2 for i in indices])

    def score(
        self, run: Run, *, limit: int | None = None, reference: Run | None = None
    ) -> dict[str, float]:
        """Score the accuracy."""
        hits = [int(run(feed)[0][0].argmax()) == label for feed, label in self.evaluation(limit)]
        return {"accuracy": float(np.mean(hits))}

    def latency_feeds(self) -> list[Feed]:
        """Give two lines."""
        return list(self.evaluation(2).feeds)

    @staticmethod
    def _feed(line: Line, upside_down: bool) -> Feed:
        picture = line.picture[::-1, ::-1] if upside_down else line.picture
        width = min(_DIRECTION_WIDTH, _scaled_width(picture))
        scaled = _tensor(resize(np.ascontiguousarray(picture), _HEIGHT, width))
        return {"x": np.pad(scaled, ((0, 0), (0, 0), (0, 0), (0, _DIRECTION_WIDTH - width)))}


class DetectionModel(RealModel):
    """Finds the lines on a page; the score is the harmonic mean of precision and recall."""

    _count = 24

    def calibration(self, samples: int = 64, seed: int = 0) -> Sequence[Feed]:
        """Give pages of three sizes, drawn when they are asked for."""
        return LazyFeeds(samples, lambda i: self._feed(self._page(_CALIBRATION, seed, i)))

    def evaluation(self, limit: int | None = None) -> Evaluation[tuple[Box, ...]]:
        """Give 24 pages and the boxes of their lines."""
        pages = [self._page(_EVALUATION, 0, i) for i in range(self._count)[:limit]]
        return Evaluation([self._feed(page) for page in pages], [page.boxes for page in pages])

    def score(
        self, run: Run, *, limit: int | None = None, reference: Run | None = None
    ) -> dict[str, float]:
        """Score hmean at an overlap of one half, and the mean overlap of true lines."""
        matched = found = true = 0
        overlap = 0.0
        for feed, truth in self.evaluation(limit):
            boxes = text_boxes(run(feed)[0][0, 0])
            overlaps = match_overlaps(boxes, truth)
            matched += sum(value >= 0.5 for value in overlaps)
            overlap += sum(overlaps)
            found += len(boxes)
            true += len(truth)
        hmean = 2 * matched / max(found + true, 1)
        return {"hmean": hmean, "mean_overlap": overlap / max(true, 1)}

    def latency_feeds(self) -> list[Feed]:
        """Give two pages."""
        return list(self.evaluation(2).feeds)

    @staticmethod
    def _page(stream: int, seed: int, index: int) -> Page:
        random = np.random.default_rng([seed, stream, index])
        height, width = _PAGES[index % len(_PAGES)]
        return random_page(random, stream == _EVALUATION, height, width)

    @staticmethod
    def _feed(page: Page) -> Feed:
        return {"x": _tensor(page.picture)}


PPOCR_REC = RecognitionModel(
    name="ppocr_rec",
    file=_WHEEL.files[0].name,
    licence="Apache-2.0",
    source=_WHEEL.source,
    metric="cer",
    higher_is_better=False,
    wheel=_WHEEL,
)
PPOCR_CLS = DirectionModel(
    name="ppocr_cls",
    file=_WHEEL.files[1].name,
    licence="Apache-2.0",
    source=_WHEEL.source,
    metric="accuracy",
    higher_is_better=True,
    wheel=_WHEEL,
)
PPOCR_DET = DetectionModel(
    name="ppocr_det",
    file=_WHEEL.files[2].name,
    licence="Apache-2.0",
    source=_WHEEL.source,
    metric="hmean",
    higher_is_better=True,
    wheel=_WHEEL,
)
