"""Weights of matrix products on codes of a few bits: how they are stored, and how chosen."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from lucid_fx.quantization.weight_only.config import Compute, Method, WeightConfig
from lucid_fx.quantization.weight_only.gptq import solve
from lucid_fx.quantization.weight_only.gram import GramObserver
from lucid_fx.quantization.weight_only.hqq import refine
from lucid_fx.quantization.weight_only.matrix import (
    OperandType,
    QuantizedMatrix,
    WeightsOp,
    operand_shapes,
)
from lucid_fx.quantization.weight_only.round_to_nearest import round_to_nearest

__all__ = [
    "Compute",
    "GramObserver",
    "Method",
    "OperandType",
    "QuantizedMatrix",
    "WeightConfig",
    "WeightsOp",
    "operand_shapes",
    "quantize_matrix",
    "refine",
    "round_to_nearest",
    "solve",
]


def quantize_matrix(w: NDArray[Any], config: WeightConfig) -> QuantizedMatrix:
    """Codes of ``w [K, N]`` by the method of ``config``, as far as it needs no data.

    Raises:
        ValueError: the method is gptq, or the weights do not fit the format.
    """
    if config.method == "gptq":
        raise ValueError("method is gptq, which needs the inputs of the layer: see solve")
    return refine(w, config) if config.method == "hqq" else round_to_nearest(w, config)
