"""Findings about a deployed graph: each rule has a name, a reason and a fix, as in a linter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from lucid_fx.errors import LucidFxError
from lucid_fx.explaining.deployed import PRODUCTS, Deployed
from lucid_fx.ir.walk import attribute, constant, input_at, is_constant, is_op, nodes
from lucid_fx.passes.weights import pair_sums
from lucid_fx.target import Target


@dataclass(frozen=True)
class Finding:
    """Something that costs speed or accuracy where the model runs.

    Attributes:
        rule: name of the rule.
        node: the node it is about, in our graph where it is there, else in onnxruntime's.
        what: what was found, in one sentence.
        fix: what to do about it.
    """

    rule: str
    node: str
    what: str
    fix: str


class FindingsError(LucidFxError):
    """Findings of rules that the user does not accept.

    Args:
        findings: at least one.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        first = findings[0]
        more = f"; and {len(findings) - 1} more" if len(findings) > 1 else ""
        super().__init__(f"{first.rule}: {first.what}{more}", node=first.node, hint=first.fix)


Check = Callable[[Deployed, Target], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Rule:
    """A named check.

    Attributes:
        name: for ``--fail-on``.
        fix: what to do about a finding.
        check: yields the node and the sentence of each finding.
    """

    name: str
    fix: str
    check: Check


def findings(deployed: Deployed, target: Target) -> list[Finding]:
    """What the rules find, in the order of `RULES`."""
    return [
        Finding(rule.name, node, what, rule.fix)
        for rule in RULES
        for node, what in rule.check(deployed, target)
    ]


def _dequantized_weights(deployed: Deployed, target: Target) -> Iterator[tuple[str, str]]:
    for node in nodes(deployed.optimised):
        for value in node.inputs[1:] if node.op_type in PRODUCTS else ():
            codes = _dequantized_from(value)
            if is_constant(codes) or codes in deployed.independent:
                yield (
                    node.name or "",
                    (
                        f"{node.op_type} computes in float on the weight {_name(codes)}, which is"
                        " dequantized at every run"
                    ),
                )


def _dequantized_from(value: ir.Value | None) -> ir.Value | None:
    """The codes that a DequantizeLinear makes a value of."""
    maker = value.producer() if value is not None else None
    return input_at(maker, 0) if maker is not None and is_op(maker, "DequantizeLinear") else None


def _float_bias(deployed: Deployed, target: Target) -> Iterator[tuple[str, str]]:
    for node in nodes(deployed.optimised):
        bias = input_at(node, 2)
        on_codes = all(_dequantized_from(input_at(node, i)) is not None for i in (0, 1))
        if node.op_type in ("Gemm", "FusedGemm") and on_codes and _dequantized_from(bias) is None:
            yield (
                node.name or "",
                (
                    f"{node.op_type} has inputs on codes and the float bias {_name(bias)}, so"
                    " onnxruntime made it of MatMul and Add and computes it in float"
                ),
            )


MOVERS = frozenset(
    {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Pad", "Expand", "Tile"}
)


def _between_qdq(deployed: Deployed, target: Target) -> Iterator[tuple[str, str]]:
    for node in nodes(deployed.model):
        first = input_at(node, 0)
        before = first.producer() if first is not None else None
        readers = {use.op_type for use in node.successors()}
        stuck = is_op(before, "QuantizeLinear") and "DequantizeLinear" in readers
        if node.op_type in MOVERS and before is not None and stuck:
            yield (
                node.name or "",
                (
                    f"{node.op_type} stands between QuantizeLinear {before.name!r} and"
                    " DequantizeLinear: the two cannot be taken into their neighbours"
                ),
            )


_WHY_FLOAT = {
    "Relu": "a Relu is dropped only where the zero point of its output is the lowest code",
    "Clip": "a Clip is dropped only where the grid of its output ends where it does",
    "Conv": "a Conv needs its output quantized once, and no reader in float",
    "Resize": "only nearest neighbours move codes",
}


def _float_between_qdq(deployed: Deployed, target: Target) -> Iterator[tuple[str, str]]:
    for node in nodes(deployed.optimised):
        if not is_op(node, "DequantizeLinear") or is_constant(node.inputs[0]):
            continue
        for reader in node.successors():
            back = any(is_op(below, "QuantizeLinear") for below in reader.successors())
            if back and not reader.op_type.startswith("QLinear"):
                why = _WHY_FLOAT.get(reader.op_type, "it has no kernel for codes")
                yield (
                    reader.name or "",
                    (
                        f"{reader.op_type} runs in float between DequantizeLinear and"
                        f" QuantizeLinear: {why}"
                    ),
                )


def _saturation(deployed: Deployed, target: Target) -> Iterator[tuple[str, str]]:
    for node in nodes(deployed.optimised) if target.saturates else ():
        rows = _signed_rows(node)
        worst = 0 if rows is None else 255 * int(pair_sums(node, rows, 0).max(initial=0))
        if worst > np.iinfo(np.int16).max:
            yield (
                node.name or "",
                (
                    f"{node.op_type} can add two products to {worst}, past the 32767 that the"
                    f" 16-bit sums of {target.isa} hold: results there are wrong without a sign"
                ),
            )


_SIGNED_WEIGHT = {
    "QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3, "MatMulInteger": 1,
    "MatMulIntegerToFloat": 1, "DynamicQuantizeMatMul": 1,
}  # fmt: skip


def _signed_rows(node: ir.Node) -> NDArray[Any] | None:
    """The s8 weight of a kernel that adds products in pairs, a row for each output."""
    index = _SIGNED_WEIGHT.get(node.op_type)
    weight = None if index is None else constant(input_at(node, index))
    if weight is None or weight.dtype != np.int8 or weight.ndim < 2:
        return None
    if node.op_type == "QLinearConv":
        depthwise = attribute(node, "group", 1) > 1 and weight.shape[1] == 1
        return None if depthwise else np.moveaxis(weight, 1, -1).reshape(len(weight), -1)
    if node.op_type == "QGemm" and attribute(node, "transB", 0):
        return weight
    return np.moveaxis(weight, -1, 0).reshape(weight.shape[-1], -1)


def _inserted_transposes(deployed: Deployed, target: Target) -> Iterator[tuple[str, str]]:
    for node in deployed.inserted("Transpose"):
        if not is_constant(node.inputs[0]):
            yield node.name or "", f"onnxruntime inserted a Transpose of {_name(node.inputs[0])}"


def _inserted_casts(deployed: Deployed, target: Target) -> Iterator[tuple[str, str]]:
    for node in deployed.inserted("Cast"):
        if not is_constant(node.inputs[0]):
            yield (
                node.name or "",
                (
                    f"onnxruntime inserted a Cast of {_name(node.inputs[0])}: an op has no kernel"
                    " for its type"
                ),
            )


def _name(value: ir.Value | None) -> str:
    return repr(value.name) if value is not None else "''"


RULES = (
    Rule(
        "dequantized-weight",
        "quantize its input and output too, or store the weight in float; for MatMul,"
        " quantize_weights makes it an op that reads codes",
        _dequantized_weights,
    ),
    Rule(
        "float-bias",
        "give the bias as int32 codes with scale_x * scale_w, or quantize the output; convert_fx"
        " does both",
        _float_bias,
    ),
    Rule(
        "move-between-qdq",
        "move the op before QuantizeLinear or behind DequantizeLinear; for a weight, transpose the"
        " constant itself",
        _between_qdq,
    ),
    Rule(
        "saturating-kernel",
        "convert for this target (--target), which proves weights safe or repairs them; or use a"
        " machine with VNNI",
        _saturation,
    ),
    Rule(
        "float-between-qdq",
        "leave it out of quantization together with its neighbours, or fuse it into its producer",
        _float_between_qdq,
    ),
    Rule(
        "inserted-transpose",
        "keep neighbouring Convs on codes so that the layout changes once; format qoperator fixes"
        " layouts ahead",
        _inserted_transposes,
    ),
    Rule(
        "inserted-cast", "convert the model to float32 before deploying on a CPU", _inserted_casts
    ),
)
"""All rules, the gravest first."""
