"""From a calibrated model and a plan to a model that computes on codes."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

from lucid_fx.graph_module import clone_model
from lucid_fx.ir.ledger import Status, ledger_of
from lucid_fx.ir.serde import sample_shapes
from lucid_fx.ir.walk import nodes
from lucid_fx.ops.table import NO_REALS
from lucid_fx.passes.absorb_activation_range import AbsorbActivationRange
from lucid_fx.passes.assign_channels_last import AssignChannelsLast
from lucid_fx.passes.choose_integer_regions import Plan
from lucid_fx.passes.eliminate_dead import EliminateDead
from lucid_fx.passes.equalize_channels import EqualizeChannels
from lucid_fx.passes.insert_qdq import InsertQDQ
from lucid_fx.passes.lower_to_qlinear import LowerToQLinear
from lucid_fx.passes.merge_hard_swish import MergeHardSwish
from lucid_fx.passes.pad_depthwise_channels import PadDepthwiseChannels
from lucid_fx.passes.pipeline import GraphPass, run_pipeline
from lucid_fx.passes.qdq import AXIS_OPSET
from lucid_fx.passes.quantize_embeddings import QuantizeEmbeddings
from lucid_fx.passes.quantize_lstm_dynamic import QuantizeLSTMDynamic
from lucid_fx.passes.quantize_matmul_dynamic import QuantizeMatMulDynamic
from lucid_fx.passes.raise_opset import RaiseOpset
from lucid_fx.prepared import PreparedModule
from lucid_fx.statistics import Statistics

Format = Literal["qoperator", "qdq"]


def convert(
    prepared: PreparedModule, plan: Plan, statistics: Statistics, format: Format
) -> ir.Model:
    """Write the integer form of the nodes in ``plan``; ``prepared`` is not changed."""
    model = clone_model(prepared.float_model)
    by_name = {node.name: node for node in nodes(model)}
    for name, reason in plan.reasons.items():
        if name in by_name:
            status: Status = "passed_through" if reason == NO_REALS else "float"
            ledger_of(model).record(by_name[name], status, reason, "choose-integer-regions")
    passes = convert_passes(prepared, plan, statistics, format)
    with sample_shapes(model, prepared.shapes):
        run_pipeline(model, passes)
    ledger_of(model).close(model)
    return model


def convert_passes(
    prepared: PreparedModule, plan: Plan, statistics: Statistics, format: Format
) -> tuple[GraphPass, ...]:
    """The pipeline, in order, with the reason why each pass stands there."""
    target, weights = prepared.target, prepared.weight_factories()
    reference: tuple[GraphPass, ...] = (
        # first: its sites are those of the float graph that was observed
        EqualizeChannels(statistics.factors),
        # before weights become codes: the kernels want whole vectors of channels
        PadDepthwiseChannels(plan.integer, target.depthwise_width),
        # before Q and DQ: takes whole MatMul + Add pairs
        QuantizeMatMulDynamic(plan.dynamic, weights, target, portable=format == "qdq"),
        QuantizeLSTMDynamic(plan.dynamic, weights, target),
        QuantizeEmbeddings(prepared.left_in_float()),
        # after rewrites of products: in float regions one op reads x in place of two
        MergeHardSwish(plan.integer),
        # a Relu between Conv and Q would keep the Conv in float; only the Q makes up for it
        AbsorbActivationRange(plan.absorbed),
        # the reference form
        InsertQDQ(plan.integer, statistics.grids, weights, target, statistics.means),
    )
    if format == "qdq":
        # Q and DQ of ONNX itself instead of onnxruntime's own, where a channel axis needs it
        needed = (RaiseOpset(AXIS_OPSET),) if plan.integer else ()
        return (*needed, *reference, EliminateDead())
    return (
        *reference,
        LowerToQLinear(plan.integer),  # every DQ → op → Q becomes one op
        AssignChannelsLast(),  # after lowering: QLinearConv is fast channels-last only
        EliminateDead(),  # float weights that the codes replaced
    )
