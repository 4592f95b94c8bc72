"""Affine grids: dtypes, observers, recipes and the arithmetic between real values and codes."""

import sys
from typing import Any

from lucid_fx.quantization.affine import (
    dequantize,
    fake_quantize,
    fake_quantize_backward,
    quantize,
)
from lucid_fx.quantization.constant_observers import (
    FixedQParamsObserver,
    NoopObserver,
    PlaceholderObserver,
)
from lucid_fx.quantization.dtypes import (
    QDtype,
    QScheme,
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint2,
    qint4,
    qint8,
    qint16,
    qint32,
    quint2,
    quint4,
    quint8,
    quint16,
)
from lucid_fx.quantization.fake_quantizer import FakeQuantize
from lucid_fx.quantization.histogram_observer import HistogramObserver
from lucid_fx.quantization.observers import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
)
from lucid_fx.quantization.qconfig import (
    QConfig,
    QConfigMapping,
    get_default_qat_qconfig,
    get_default_qat_qconfig_mapping,
    get_default_qconfig,
    get_default_qconfig_mapping,
)
from lucid_fx.quantization.qdq_nodes import QDQConstants, qdq_constants, qparams_of_node
from lucid_fx.quantization.qparams import QParams, calculate_qparams

WORKFLOW = ("convert_fx", "prepare_fx")
"""Public names that work on whole graphs; they belong to the package above this one."""

__all__ = [
    "FakeQuantize",
    "FixedQParamsObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "QConfigMapping",
    "QDQConstants",
    "QDtype",
    "QParams",
    "QScheme",
    "calculate_qparams",
    "convert_fx",
    "dequantize",
    "fake_quantize",
    "fake_quantize_backward",
    "get_default_qat_qconfig",
    "get_default_qat_qconfig_mapping",
    "get_default_qconfig",
    "get_default_qconfig_mapping",
    "per_channel_affine",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "prepare_fx",
    "qdq_constants",
    "qint2",
    "qint4",
    "qint8",
    "qint16",
    "qint32",
    "qparams_of_node",
    "quantize",
    "quint2",
    "quint4",
    "quint8",
    "quint16",
]


def __getattr__(name: str) -> Any:
    """`prepare_fx` and `convert_fx` of the package above, under their names here as well.

    Arithmetic must not import the workflow that is built on it. The parent package is always
    imported before this one and holds both functions, so they are looked up there when asked for.
    """
    if name in WORKFLOW:
        return getattr(sys.modules["lucid_fx"], name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
