"""The catalogue, and the data of every model that needs no fetching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lucid_fx import models
from lucid_fx.errors import ConfigError
from lucid_fx.models import Feed, RealModel

ALL = list(models.MODELS)
SHAPES = {
    "fmnist_dw": {"image": (1, 1, 28, 28)},
    "byte_lm": {"input_ids": (1, 128)},
    "ppocr_rec": {"x": (1, 3, 48, None)},
    "ppocr_cls": {"x": (1, 3, 48, 192)},
    "ppocr_det": {"x": (1, 3, None, None)},
    "silero_vad": {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
    "silero_vad_ifless": {"input": (1, 576), "state": (2, 1, 128), "sr": ()},
    "minilm_l3": {"input_ids": (1, None), "attention_mask": (1, None)},
}
INTEGERS = {"input_ids", "attention_mask", "sr"}


def same(a: Feed, b: Feed) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def fingerprints(feeds: Any) -> set[bytes]:
    """The first input of every feed, item by item of its batch."""
    return {row.tobytes() for feed in feeds for row in next(iter(feed.values()))}


@pytest.fixture(params=ALL)
def model(request: pytest.FixtureRequest) -> RealModel:
    return models.get(request.param)


def test_names_are_fixed() -> None:
    assert set(ALL) == set(SHAPES)
    assert {name for name, model in models.MODELS.items() if model.shipped} == {
        "fmnist_dw",
        "byte_lm",
    }


@pytest.mark.parametrize("name", ["fmnist_dw", "byte_lm"])
def test_shipped_models_are_there_without_fetching(name: str) -> None:
    assert models.get(name).path(fetch=False).stat().st_size > 100_000


def test_unknown_name_lists_near_matches() -> None:
    with pytest.raises(
        ConfigError, match=r"^there is no model 'ppocr_rek'; did you mean ppocr_rec"
    ):
        models.get("ppocr_rek")


def test_unknown_name_without_near_matches_lists_all() -> None:
    with pytest.raises(ConfigError, match=r"known: fmnist_dw, byte_lm, .*minilm_l3"):
        models.get("zzz")


def test_fetch_refuses_unknown_names_first() -> None:
    with pytest.raises(ConfigError, match="fmnist_dww"):
        models.fetch(["fmnist_dw", "fmnist_dww"])


def test_calibration_feeds_fit(model: RealModel) -> None:
    feeds = model.calibration(5)
    assert len(feeds) == 5
    for feed in [*feeds, *model.latency_feeds()]:
        assert feed.keys() == SHAPES[model.name].keys()
        for name, shape in SHAPES[model.name].items():
            assert feed[name].dtype == (np.int64 if name in INTEGERS else np.float32)
            assert len(feed[name].shape) == len(shape)
            fits = zip(feed[name].shape, shape, strict=True)
            assert all(wanted in (None, got) for got, wanted in fits)
            assert np.isfinite(feed[name]).all()


def test_data_is_the_same_every_time(model: RealModel) -> None:
    assert all(map(same, model.calibration(4), model.calibration(4)))
    assert all(map(same, model.calibration(2), model.calibration(4)))
    assert all(map(same, model.evaluation(3).feeds, model.evaluation(3).feeds))


def test_seeds_give_other_calibration_data(model: RealModel) -> None:
    assert not all(map(same, model.calibration(4, seed=0), model.calibration(4, seed=1)))


def test_calibration_and_evaluation_are_disjoint(model: RealModel) -> None:
    limit = 4 if model.name == "ppocr_det" else 200
    calibration = fingerprints(model.calibration(8 if model.name == "ppocr_det" else 64))
    assert not calibration & fingerprints(model.evaluation(limit).feeds)


def test_calibration_can_be_walked_twice(model: RealModel) -> None:
    feeds = model.calibration(3)
    assert all(map(same, feeds, feeds))
    assert same(feeds[2], list(feeds)[2])


def test_lazy_feeds_slice_and_bounds() -> None:
    feeds = models.LazyFeeds(5, lambda i: {"x": np.array(i)})
    assert [int(feed["x"]) for feed in feeds[1:4]] == [1, 2, 3]
    assert int(feeds[-1]["x"]) == 4
    assert len(feeds[::2]) == 3
    with pytest.raises(IndexError):
        feeds[5]


def test_evaluation_needs_a_label_a_feed() -> None:
    with pytest.raises(ValueError, match="2 feeds, but 1 labels"):
        models.Evaluation([{}, {}], [1])


def test_fashion_score_counts_hits() -> None:
    model = models.get("fmnist_dw")
    labels: NDArray[Any] = np.concatenate(model.evaluation(100).labels)

    def always_zero(feed: Feed) -> list[NDArray[Any]]:
        logits = np.zeros((len(feed["image"]), 10), np.float32)
        logits[:, 0] = 1
        return [logits]

    assert model.score(always_zero, limit=100) == {"accuracy": float((labels == 0).mean())}


def test_byte_model_score_of_knowing_nothing() -> None:
    model = models.get("byte_lm")
    scores = model.score(lambda feed: [np.zeros((1, 128, 128), np.float32)], limit=4)
    assert scores["ppl"] == pytest.approx(128)


def test_sentence_score_of_the_model_itself() -> None:
    model = models.get("minilm_l3")

    def pretend(feed: Feed) -> list[NDArray[Any]]:
        vector = np.random.default_rng(int(feed["input_ids"].sum())).standard_normal((1, 8))
        return [vector] * 4

    scores = model.score(pretend, limit=10, reference=pretend)
    assert scores["cosine"] == pytest.approx(1)
    assert 0 < scores["mrr"] < 1
