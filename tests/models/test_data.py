"""The parts that data and scores are made of."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from lucid_fx import models
from lucid_fx.errors import ConfigError
from lucid_fx.models import ocr, speech, voice
from lucid_fx.models.corpus import tokens, topics_text
from lucid_fx.models.detection import match_overlaps, text_boxes
from lucid_fx.models.rendering import random_line, random_page, random_text


def test_text_is_ascii_and_long() -> None:
    assert topics_text().isascii()
    assert len(topics_text()) > 300_000
    assert len(tokens()) > 2_000


def test_words_of_the_two_sets_never_mix() -> None:
    random = np.random.default_rng(0)
    seen: dict[bool, set[str]] = {
        held_out: {
            word
            for _ in range(300)
            for word in random_text(random, held_out).split()
            if not word.isdigit()
        }
        for held_out in (False, True)
    }
    assert not seen[False] & seen[True]


def test_lines_are_drawn() -> None:
    line = random_line(np.random.default_rng(3), held_out=True)
    assert line.picture.dtype == np.uint8
    assert line.picture.shape[2] == 3
    assert line.picture.std() > 10


def test_page_boxes_hold_the_ink() -> None:
    page = random_page(np.random.default_rng(4), True, 480, 640)
    assert page.picture.shape == (480, 640, 3)
    assert len(page.boxes) >= 3
    for left, top, right, bottom in page.boxes:
        inside = page.picture[int(top) : int(bottom), int(left) : int(right)]
        assert inside.std() > page.picture.std() / 2


def test_without_pillow_the_error_tells_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ConfigError, match=r"Pillow.*; pip install 'lucid-fx\[models\]'"):
        models.get("ppocr_det").calibration(1)[0]


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("abc", "abc", 0)],
)
def test_edit_distance(a: str, b: str, distance: int) -> None:
    assert ocr.edit_distance(a, b) == ocr.edit_distance(b, a) == distance


def test_ctc_merges_repeats_and_drops_blanks() -> None:
    best = np.array([3, 1, 1, 0, 1, 2, 2, 0, 3])
    assert ocr._decode(np.eye(4)[best], ("", "a", "b", " ")) == "aab"


def test_regions_touch_at_corners_and_bend() -> None:
    probability = np.zeros((40, 60), np.float32)
    probability[5:15, 5:10] = 1  # a U: its arms meet in the last row only
    probability[5:15, 20:25] = 1
    probability[14, 5:25] = 1
    probability[15:20, 25:30] = 1  # touches the U's corner
    probability[30:36, 40:55] = 0.9  # another
    probability[0:10, 50:58] = 0.4  # too faint in the mean
    probability[38, 2:40] = 1  # too thin
    first, second = text_boxes(probability)
    grow = 25 * 15 * 1.6 / (2 * 40)
    assert first == pytest.approx((5 - grow, 5 - grow, 30 + grow, 20 + grow))
    assert second[0] < 40
    assert second[2] > 55


def test_no_text_gives_no_boxes() -> None:
    assert text_boxes(np.zeros((8, 8), np.float32)) == []
    assert len(text_boxes(np.ones((8, 8), np.float32))) == 1


def test_boxes_are_matched_once_and_best_first() -> None:
    truth = [(0.0, 0.0, 10.0, 10.0), (20.0, 0.0, 30.0, 10.0)]
    found = [(0.0, 0.0, 10.0, 8.0), (0.0, 0.0, 10.0, 10.0), (40.0, 0.0, 50.0, 10.0)]
    assert match_overlaps(found, truth) == [1.0]
    assert match_overlaps(found[:1], truth) == pytest.approx([0.8])
    assert match_overlaps([], truth) == []


def test_speech_has_pauses_and_no_steps() -> None:
    sound = voice.speech(np.random.default_rng(1), 6)
    assert len(sound) == 6 * voice.RATE
    assert np.isfinite(sound).all()
    assert np.abs(sound).max() < 2
    frames = np.square(sound[: len(sound) // 512 * 512]).reshape(-1, 512).mean(axis=1)
    assert 0.2 < (frames > 1e-4 * frames.max()).mean() < 0.9


def test_noise_has_the_level_that_was_asked_for() -> None:
    clean = np.zeros(10 * voice.RATE)
    noise = voice.add_noise(np.random.default_rng(2), clean, 1.0)
    assert 10 ** (-20 / 20) < noise.std() < 10 ** (-5 / 20)


def test_frames_carry_the_end_of_the_frame_before() -> None:
    feeds = models.get("silero_vad").evaluation(3).feeds
    assert not feeds[0]["input"][0, :64].any()
    assert np.array_equal(feeds[1]["input"][0, :64], feeds[0]["input"][0, -64:])


def test_scoring_speech_carries_the_state() -> None:
    model = models.get("silero_vad")
    states: list[float] = []

    def run(feed: models.Feed) -> list[np.ndarray]:
        states.append(float(feed["state"][0, 0, 0]))
        return [np.array([[0.9]], np.float32), feed["state"] + 1]

    scores = model.score(run, limit=50)
    assert states == list(range(50))
    assert scores["auc"] == pytest.approx(0.5)


def test_area_under_roc() -> None:
    labels = np.array([True, True, False, False])
    assert speech._area_under_roc(np.array([0.9, 0.8, 0.2, 0.1]), labels) == 1
    assert speech._area_under_roc(np.array([0.9, 0.2, 0.2, 0.1]), labels) == 0.875
