"""fmnist_dw: a MobileNetV2-style classifier, with a sample of Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lucid_fx.models.base import Evaluation, Feed, RealModel, Run, spread

_BATCH = 50


@cache
def _sample() -> dict[str, NDArray[np.uint8]]:
    with np.load(Path(__file__).parent / "fashion_mnist_sample.npz") as archive:
        return {name: archive[name] for name in archive.files}


def _feed(images: NDArray[np.uint8]) -> Feed:
    """Normalise uint8 images [n, 28, 28] to what the model was trained on."""
    scaled = (images.astype(np.float32) / 255 - 0.2860) / 0.3530
    return {"image": scaled[:, np.newaxis].astype(np.float32)}


class FashionModel(RealModel):
    """Ten kinds of clothing, 28x28 grey images; 512 to calibrate with, 2,000 labelled."""

    def calibration(self, samples: int = 64, seed: int = 0) -> Sequence[Feed]:
        """Give training images, one a feed."""
        images = _sample()["calib_images"]
        return [_feed(images[i : i + 1]) for i in spread(len(images), samples, seed)]

    def evaluation(self, limit: int | None = None) -> Evaluation[NDArray[np.uint8]]:
        """Give test images and labels, 50 a feed."""
        images, labels = _sample()["test_images"][:limit], _sample()["test_labels"][:limit]
        starts = range(0, len(images), _BATCH)
        return Evaluation(
            [_feed(images[i : i + _BATCH]) for i in starts],
            [labels[i : i + _BATCH] for i in starts],
        )

    def score(
        self, run: Run, *, limit: int | None = None, reference: Run | None = None
    ) -> dict[str, float]:
        """Score the accuracy."""
        hits: list[NDArray[Any]] = [
            run(feed)[0].argmax(axis=1) == labels for feed, labels in self.evaluation(limit)
        ]
        return {"accuracy": float(np.concatenate(hits).mean())}

    def latency_feeds(self) -> list[Feed]:
        """Give four single images."""
        images = _sample()["test_images"]
        return [_feed(images[i : i + 1]) for i in range(4)]


FMNIST_DW = FashionModel(
    name="fmnist_dw",
    file="fmnist_dw.onnx",
    licence="Apache-2.0 (model), MIT (Fashion-MNIST sample)",
    source="trained for this project",
    metric="accuracy",
    higher_is_better=True,
)
