"""byte_lm: a small decoder over bytes, with text from Python's own help."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from lucid_fx.models.base import Evaluation, Feed, RealModel, Run, spread
from lucid_fx.models.corpus import topics_text

_CONTEXT = 128
_BLOCK = 2048
_HELD_OUT = 9  # this block of every ten is for evaluation
_WINDOWS = 64


@cache
def _windows(held_out: bool) -> NDArray[np.int64]:
    """Cut the text into windows of 129 bytes: 128 to read, shifted by one to predict."""
    text = np.frombuffer(topics_text().encode("ascii"), dtype=np.uint8)
    blocks = text[: len(text) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    chosen = blocks[(np.arange(len(blocks)) % 10 == _HELD_OUT) == held_out]
    per_block = _BLOCK // (_CONTEXT + 1)
    cut = chosen[:, : per_block * (_CONTEXT + 1)]
    windows: NDArray[np.int64] = cut.reshape(-1, _CONTEXT + 1).astype(np.int64)
    return windows


class ByteModel(RealModel):
    """The next byte after each of 128; the score is the perplexity per byte."""

    def calibration(self, samples: int = 64, seed: int = 0) -> Sequence[Feed]:
        """Give windows of the blocks that evaluation leaves out, one a feed."""
        windows = _windows(held_out=False)
        return [{"input_ids": windows[i : i + 1, :-1]} for i in spread(len(windows), samples, seed)]

    def evaluation(self, limit: int | None = None) -> Evaluation[NDArray[np.int64]]:
        """Give held-out windows and, as labels, the bytes that come next; one window a feed."""
        windows = _windows(held_out=True)
        picked = np.linspace(0, len(windows) - 1, _WINDOWS).astype(int)[:limit]
        return Evaluation(
            [{"input_ids": windows[i : i + 1, :-1]} for i in picked],
            [windows[i, 1:] for i in picked],
        )

    def score(
        self, run: Run, *, limit: int | None = None, reference: Run | None = None
    ) -> dict[str, float]:
        """Score the perplexity, exp of the mean negative log likelihood of the next byte."""
        losses = [_loss(run(feed)[0][0], target) for feed, target in self.evaluation(limit)]
        return {"ppl": float(np.exp(np.mean(losses)))}

    def latency_feeds(self) -> list[Feed]:
        """Give two full windows."""
        return list(self.evaluation(2).feeds)


def _loss(logits: NDArray[np.float32], target: NDArray[np.int64]) -> float:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=-1))
    return float(np.mean(log_total - shifted[np.arange(len(target)), target]))


BYTE_LM = ByteModel(
    name="byte_lm",
    file="byte_lm.onnx",
    licence="Apache-2.0 (model); text of the Python standard library (PSF-2.0), not shipped",
    source="trained for this project",
    metric="ppl",
    higher_is_better=False,
)
