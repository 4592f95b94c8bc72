"""What must hold for any model: see `random_graphs` for the models and for the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import HealthCheck, Phase, given, settings
from numpy.typing import NDArray
from random_graphs import CODES, Tensor, models, samples

import lucid_fx
from lucid_fx.ir.verify import verify
from lucid_fx.ir.walk import nodes
from lucid_fx.runtime.reference import evaluate
from lucid_fx.runtime.session import Session

FEW = settings(
    max_examples=60, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
Case = tuple[onnx.ModelProto, dict[str, Tensor]]


def run(model: Any, feed: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Outputs of onnxruntime, as it runs models by default."""
    session = Session(model)
    return dict(zip(session.output_names, session.run(feed), strict=True))


def as_given(proto: onnx.ModelProto) -> ir.Model:
    """The model untouched, but for node names: onnxruntime takes no equal ones, we do."""
    model = ir.from_proto(proto)
    for number, node in enumerate(nodes(model)):
        node.name = f"node{number}"
    return model


def interface(model: ir.Model) -> list[str]:
    """Names and types of inputs and outputs, and how many dimensions."""
    values = (*model.graph.inputs, *model.graph.outputs)
    return [f"{v.name} {v.dtype} {len(v.shape) if v.shape is not None else '?'}" for v in values]


@given(models())
@FEW
def test_float_passes_keep_the_numbers(case: Case) -> None:
    proto, bounds = case
    fused = lucid_fx.fuse(proto)
    verify(fused.model)
    assert interface(fused.model) == interface(ir.from_proto(proto))
    for feed in samples(proto, 1):
        wanted, found = run(as_given(proto), feed), run(fused.model, feed)
        for name, tensor in bounds.items():
            np.testing.assert_allclose(
                found[name], wanted[name], rtol=0, atol=tensor.rounding, err_msg=name
            )


@given(models())
@FEW
def test_both_formats_load_and_agree_with_each_other_and_with_numpy(case: Case) -> None:
    proto, bounds = case
    feeds = samples(proto, 2)
    prepared = lucid_fx.prepare_fx(proto, example_inputs=feeds[0])
    lucid_fx.calibrate(prepared, feeds)
    qdq = lucid_fx.convert_fx(prepared, format="qdq")
    qoperator = lucid_fx.convert_fx(prepared, format="qoperator")
    grids = prepared.grids()

    def step(name: str, most: float) -> float:
        return float(grids[name].scale) if name in grids else 2 * most / CODES

    for module in (qdq, qoperator):
        verify(module.model)
        assert interface(module.model) == interface(ir.from_proto(proto))
    for feed in feeds:
        pairs, codes = run(qdq.model, feed), run(qoperator.model, feed)
        exact, by_pairs = evaluate(qoperator.model, feed), evaluate(qdq.model, feed)
        for name, tensor in bounds.items():
            close = {"rtol": 0, "atol": tensor.codes(step), "err_msg": name}
            np.testing.assert_allclose(codes[name], exact[name], **close)
            np.testing.assert_allclose(pairs[name], by_pairs[name], **close)
            np.testing.assert_allclose(pairs[name], codes[name], **close)


@given(models())
@settings(parent=FEW, max_examples=30)
def test_the_ledger_tells_of_every_node(case: Case) -> None:
    proto, _ = case
    module = lucid_fx.quantize(proto, samples(proto, 3))
    traced = lucid_fx.trace(proto)
    assert {entry.node for entry in module.ledger} == {entry.node for entry in traced.ledger}
    assert not [entry for entry in module.ledger if entry.reason == "not looked at yet"]
