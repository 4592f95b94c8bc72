"""The yardstick for every kernel: a quantized model computed in plain numpy, exactly.

Integer sums are exact and roundings are those that the operators are defined by, so a result
of onnxruntime that differs by more than one code is a defect there, or in how we wrote the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir import reference
from lucid_fx.ir.serde import load_model


def evaluate(
    model: ir.Model | str | Path,
    feed: Mapping[str, NDArray[Any]],
    outputs: list[str] | None = None,
) -> dict[str, NDArray[Any]]:
    """Graph outputs by name, computed without onnxruntime; slow, for tests and comparisons.

    Args:
        model: in memory, or the path of an ONNX file.
        feed: arrays by graph input.
        outputs: names of values to give instead of the graph outputs.
    """
    loaded = model if isinstance(model, ir.Model) else load_model(model)
    return reference.evaluate(loaded, feed, outputs)
