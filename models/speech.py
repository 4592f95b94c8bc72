"""Silero VAD, two exports of it: is there speech in this frame of 32 ms?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lucid_fx.models.base import Evaluation, Feed, RealModel, Run, spread
from lucid_fx.models.fetching import Wheel, WheelFile
from lucid_fx.models.voice import RATE, add_noise, speech

_WHEEL = Wheel(
    "silero-vad",
    "6.2.3",
    (
        WheelFile(
            "silero_vad/data/silero_vad.onnx",
            "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
        ),
        WheelFile(
            "silero_vad/data/silero_vad_op18_ifless.onnx",
            "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28",
        ),
    ),
)
_FRAME, _CONTEXT = 512, 64
_SECONDS = 80
_CALIBRATION, _EVALUATION = 11, 12  # streams of random numbers that never meet
_RECORDED_EVERY = 10  # of the calibration frames, these have their state in the package
_SILENCE = 1e-4  # of the loudest frame's energy
_STATE_SHAPE = (2, 1, 128)


@cache
def _sound(stream: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Give noisy frames with their context [n, 576], and which of them hold speech."""
    random = np.random.default_rng(stream)
    clean = speech(random, _SECONDS)
    count = len(clean) // _FRAME
    energy = np.square(clean[: count * _FRAME]).reshape(count, _FRAME).mean(axis=1)
    labels = energy > _SILENCE * energy.max()
    noisy = add_noise(random, clean, float(np.sqrt(energy[labels].mean())))
    padded = np.concatenate([np.zeros(_CONTEXT), noisy]).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(padded, _CONTEXT + _FRAME)
    return windows[::_FRAME][:count], labels


@cache
def _recorded_states() -> NDArray[np.float32]:
    """Give the float model's states before every tenth frame of the calibration sound."""
    with np.load(Path(__file__).parent / "silero_states.npz") as archive:
        return np.asarray(archive["states"], dtype=np.float32)


def _feed(frame: NDArray[np.float32], state: NDArray[np.float32] | None = None) -> Feed:
    if state is None:
        state = np.zeros(_STATE_SHAPE, dtype=np.float32)
    return {
        "input": frame[np.newaxis],
        "state": state,
        "sr": np.array(RATE, dtype=np.int64),
    }


class SpeechModel(RealModel):
    """Runs frame by frame and carries its state; the score is F1 at a threshold of 0.5."""

    def calibration(self, samples: int = 64, seed: int = 0) -> Sequence[Feed]:
        """Give frames from all over the calibration sound, with the state that comes with them.

        The states were recorded with the float model; at most 250 frames have one.
        """
        frames, states = _sound(_CALIBRATION)[0][::_RECORDED_EVERY], _recorded_states()
        return [_feed(frames[i], states[i]) for i in spread(len(states), samples, seed)]

    def evaluation(self, limit: int | None = None) -> Evaluation[bool]:
        """Give 2,500 frames in order, with a zero state: whoever runs them carries it along."""
        frames, labels = _sound(_EVALUATION)
        return Evaluation(
            [_feed(frame) for frame in frames[:limit]],
            [bool(label) for label in labels[:limit]],
        )

    def score(
        self, run: Run, *, limit: int | None = None, reference: Run | None = None
    ) -> dict[str, float]:
        """Score F1 and the area under the ROC curve, over frames."""
        evaluation = self.evaluation(limit)
        probability = np.array([chance for chance, _ in follow(run, evaluation.feeds)])
        labels = np.array(evaluation.labels, dtype=bool)
        said = probability > 0.5
        matched = int((said & labels).sum())
        f1 = 2 * matched / max(1, int(said.sum() + labels.sum()))
        return {"f1": f1, "auc": _area_under_roc(probability, labels)}

    def latency_feeds(self) -> list[Feed]:
        """Give two frames with their state."""
        return list(self.calibration(2))


def follow(run: Run, feeds: Sequence[Feed]) -> list[tuple[float, NDArray[np.float32]]]:
    """Run frames in order; give each one's probability and the state that it started from."""
    state = np.zeros(_STATE_SHAPE, dtype=np.float32)
    result = []
    for feed in feeds:
        outputs = run({**feed, "state": state})
        result.append((float(outputs[0].reshape(-1)[0]), state))
        state = outputs[1]
    return result


def record_states(run: Run) -> NDArray[np.float16]:
    """Make the states that ``silero_states.npz`` holds, by running the float model."""
    feeds = [_feed(frame) for frame in _sound(_CALIBRATION)[0]]
    states = [state for _, state in follow(run, feeds)][::_RECORDED_EVERY]
    return np.array(states, dtype=np.float16)


def _area_under_roc(probability: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Give the chance that a speech frame scores above another, ties counting half."""
    others = np.sort(probability[~labels])
    spoken = probability[labels]
    if not len(others) or not len(spoken):
        return float("nan")
    below = np.searchsorted(others, spoken, "left") + np.searchsorted(others, spoken, "right")
    return float(below.mean() / (2 * len(others)))


def _silero(name: str, item: WheelFile) -> SpeechModel:
    return SpeechModel(
        name=name,
        file=item.name,
        licence="MIT",
        source=_WHEEL.source,
        metric="f1",
        higher_is_better=True,
        wheel=_WHEEL,
    )


SILERO_VAD = _silero("silero_vad", _WHEEL.files[0])
SILERO_VAD_IFLESS = _silero("silero_vad_ifless", _WHEEL.files[1])
