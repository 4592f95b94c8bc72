"""A record in the model of values whose channels a pass divided by factors."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.ir.provenance import origins

EVENED_KEY = "lucid_fx.evened"
"""Metadata of the model: JSON of values with their axis, factors (base64 of float32) and source."""


@dataclass(frozen=True, eq=False)
class Evening:
    """What the channels of a value were divided by.

    Attributes:
        axis: of the channels, 1 or -1.
        factor: of each channel, shape ``(C,)``.
    """

    axis: int
    factor: NDArray[np.float32]


def record_evened(
    model: ir.Model, value: ir.Value, axis: int, factor: NDArray[Any], *, made_even: bool
) -> None:
    """Record that a value is what its source was, each channel divided by a factor.

    Args:
        model: gets the record in its metadata, which outlives all passes.
        value: the even value.
        axis, factor: see `Evening`.
        made_even: its producer makes it so; otherwise a node of its own divides.
    """
    entry: dict[str, Any] = {
        "axis": axis,
        "factor": base64.b64encode(np.asarray(factor, "<f4").tobytes()).decode(),
    }
    producer = value.producer()
    if made_even and producer is not None and origins(producer):
        entry["source"] = origins(producer)[-1]
    record = json.loads(model.metadata_props.get(EVENED_KEY, "{}"))
    record[value.name] = entry
    model.metadata_props[EVENED_KEY] = json.dumps(record, separators=(",", ":"))


def evened(model: ir.Model) -> Mapping[tuple[str, str], Evening]:
    """What was recorded: ``("value", its name)`` and ``("node", its last source)`` → evening."""
    found: dict[tuple[str, str], Evening] = {}
    for name, entry in json.loads(model.metadata_props.get(EVENED_KEY, "{}")).items():
        factor = np.frombuffer(base64.b64decode(entry["factor"]), "<f4")
        found["value", name] = Evening(int(entry["axis"]), factor)
        if "source" in entry:
            found["node", entry["source"]] = found["value", name]
    return found
