"""What the op table says of one operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import onnx_ir as ir

from lucid_fx.ops.emit import Emit, Grid, Quantized

Operand = Quantized | ir.Value | None
"""An input of a node to lower: codes with their grid, or a value taken as it is."""

Lower = Callable[[Emit, ir.Node, list[Operand], list[Grid | None]], list[ir.Value]]
"""Writes a node on codes; gives the new outputs, in code where a grid is given, else real."""

Refusal = Callable[[ir.Node], str | None]
"""Why this node of the op cannot compute on codes; None when it can."""


class OutputGrid(Enum):
    """Where the grid of an op's output comes from."""

    OWN = "own"
    """Observed: the op computes new values."""
    SHARED = "shared"
    """The grid of the first data input: the op only moves or selects values."""
    FIXED = "fixed"
    """Known beforehand from the op's range."""


def first_input(node: ir.Node) -> tuple[int, ...]:
    """The data input of most ops."""
    return (0,)


def never(node: ir.Node) -> str | None:
    """No node of the op is refused."""
    return None


def everything(node: ir.Node) -> tuple[float, float]:
    """Most ops tell all inputs apart."""
    return -float("inf"), float("inf")


@dataclass(frozen=True)
class OpRow:
    """How an operator is quantized: the only place that knows.

    Attributes:
        op_type, domain: which operator.
        data: indexes of the inputs that carry data and need a grid.
        weight, weight_axis: index of the constant weight, and its output-channel axis.
        bias: index of the bias, kept in int32.
        output: where the output grid comes from.
        fixed: scale and zero point (quint8) for FIXED outputs.
        lower: how the node is written on codes; None where no kernel exists.
        refuses: reason why a certain node cannot be lowered.
        matters: the range of the data input outside which the output is constant.
        why_float: reason why the op has no integer form, for the ledger.
        integer_price, float_price: nanoseconds for each element, of the larger of input and output,
            on codes and in float
            (multiply-adds of weighted ops are priced by the target).
        anchor: quantized for its own sake; other ops must earn it by joining integer regions.
    """

    op_type: str
    domain: str = ""
    data: Callable[[ir.Node], tuple[int, ...]] = first_input
    weight: int | None = None
    weight_axis: Callable[[ir.Node], int] = field(default=lambda node: 0)
    bias: int | None = None
    output: OutputGrid = OutputGrid.OWN
    fixed: tuple[float, int] | None = None
    lower: Lower | None = None
    refuses: Refusal = never
    matters: Callable[[ir.Node], tuple[float, float]] = everything
    why_float: str = "onnxruntime has no integer kernel for it"
    integer_price: float = 0.1
    float_price: float = 0.15
    anchor: bool = False
