"""The forecast for CoreML: what is claimed, in how many parts, and why not the rest."""

from __future__ import annotations

from lucid_fx.explaining import Forecast, forecast
from lucid_fx.ir.serde import from_text, infer_shapes


def forecast_of(
    body: str, inputs: str = "float[1,4,6,6] x", more: str = "float[1] k = {2}"
) -> Forecast:
    model = from_text(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g ({inputs}) => (float y) <{more}> {{ {body} }}"""
    )
    for number, node in enumerate(model.graph):
        node.name = f"{node.op_type}{number}"
    infer_shapes(model)
    return forecast(model)


def test_a_chain_is_one_part() -> None:
    found = forecast_of("a = Relu(x) b = Sigmoid(a) y = Mul(a, b)")
    assert found == Forecast(("Relu0", "Sigmoid1", "Mul2"), 1, {})


def test_an_op_that_it_lacks_cuts_a_chain_in_two() -> None:
    found = forecast_of("a = Relu(x) b = Neg(a) y = Sigmoid(b)")
    assert found.claimed == ("Relu0", "Sigmoid2")
    assert found.partitions == 2
    assert found.reasons == {"Neg1": "CoreML's provider has no Neg"}


def test_a_branch_beside_the_cut_stays_in_the_first_part() -> None:
    found = forecast_of("a = Relu(x) n = Neg(a) b = Sigmoid(a) c = Tanh(b) y = Add(n, c)")
    assert found.partitions == 2
    assert set(found.claimed) == {"Relu0", "Sigmoid2", "Tanh3", "Add4"}


def test_quantized_graphs_shatter() -> None:
    found = forecast_of(
        "q = QuantizeLinear(x, s, z) r = DequantizeLinear(q, s, z) y = Relu(r)",
        more="float s = {0.1}, uint8 z = {0}",
    )
    assert found.claimed == ("Relu2",)
    assert found.reasons["QuantizeLinear0"] == "CoreML's provider has no QuantizeLinear"


def test_limits_of_shapes_types_and_constants() -> None:
    assert forecast_of("y = Relu(x)", "float[1,1,1,1,1,2] x").reasons == {
        "Relu0": "'x' has 6 dimensions, more than 5"
    }
    assert forecast_of("y = Conv(x, w)", "float[1,1,4,4] x, float[1,1,3,3] w").reasons == {
        "Conv0": "Conv needs input 1 to be a constant"
    }
    assert forecast_of("a = Add(x, x) y = Cast<to = 1>(a)", "int32[4] x").reasons == {
        "Add0": "Add would compute on INT32"
    }
    weight = "float[1,1,1,1,1] w = {1}"
    assert forecast_of("y = Conv(x, w)", "float[1,1,2,2,2] x", weight).reasons == {
        "Conv0": "Conv has 3 spatial axes, more than 2"
    }
    assert forecast_of("y = Relu(x)", "float[0,3] x").reasons == {"Relu0": "'x' has no elements"}
