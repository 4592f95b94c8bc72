"""Quantizing the parameters of a model."""

from __future__ import annotations

import numpy as np

import lucid_fx.quantization.block as b
from lucid_fx.quantization.block import QuantizedTensor


def test_every_float_parameter_unless_the_group_restricts_it() -> None:
    parameters = {
        "layer.weight": np.ones((4, 32), np.float32),
        "layer.bias": np.ones(32, np.float16),
        "steps": np.arange(3),
    }
    quantizer = b.Quantizer(b.Calibration.MinMax, b.mxfp4())
    every = quantizer.quantize(parameters)
    assert [isinstance(v, QuantizedTensor) for v in every.values()] == [True, True, False]
    some = quantizer.quantize(parameters, group=lambda name: name.endswith("weight"))
    assert [isinstance(v, QuantizedTensor) for v in some.values()] == [True, False, False]
    assert some["layer.bias"] is parameters["layer.bias"]
