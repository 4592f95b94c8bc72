"""Affine grids: dtypes, observers, recipes and the arithmetic between real values and codes."""

from lucid_fx.quantization.affine import dequantize, quantize
from lucid_fx.quantization.dtypes import (
    QDtype,
    QScheme,
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint4,
    qint8,
    qint32,
    quint8,
)
from lucid_fx.quantization.observers import (
    FixedQParamsObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
)
from lucid_fx.quantization.qconfig import (
    QConfig,
    QConfigMapping,
    get_default_qconfig,
    get_default_qconfig_mapping,
)
from lucid_fx.quantization.qparams import QParams, calculate_qparams

__all__ = [
    "FixedQParamsObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "QConfig",
    "QConfigMapping",
    "QDtype",
    "QParams",
    "QScheme",
    "calculate_qparams",
    "dequantize",
    "get_default_qconfig",
    "get_default_qconfig_mapping",
    "per_channel_affine",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qint4",
    "qint8",
    "qint32",
    "quantize",
    "quint8",
]
