"""Real models to quantize, with their calibration samples, evaluation data and scores."""

from lucid_fx.models.base import Evaluation, Feed, LazyFeeds, RealModel, Run
from lucid_fx.models.fetching import FetchError, cache_dir
from lucid_fx.models.zoo import MODELS, fetch, get

__all__ = [
    "MODELS",
    "Evaluation",
    "Feed",
    "FetchError",
    "LazyFeeds",
    "RealModel",
    "Run",
    "cache_dir",
    "fetch",
    "get",
]
