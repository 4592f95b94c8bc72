"""LSTMs; feed and state span exactly 255 steps, weights are multiples of a quarter."""

import numpy as np
import pytest
from checks import check_pass, check_unchanged

from lucid_fx.ir.ledger import ledger_of
from lucid_fx.passes.quantize_lstm_dynamic import QuantizeLSTMDynamic
from lucid_fx.quantization import FixedQParamsObserver, per_tensor_symmetric, qint8

QUARTERS = FixedQParamsObserver.with_args(
    scale=0.25, zero_point=0, qscheme=per_tensor_symmetric, qdtype=qint8
)
WEIGHTS = """float[1,8,2] w = {1, 2, -1, 0.5, 0.25, 1, 2, 0.75, 1, 1, 0, 3, -2, 1, 0.5, -0.25},
    float[1,8,2] r = {1, 0, 0, 1, -0.5, 0.5, 0.25, 1, 1, 1, 2, -1, 0, 0.75, 1, -1},
    float[1,1,2] h = {0, 1}, float[1,1,2] c = {0.5, -0.5}"""


def test_weights_are_stored_transposed_with_a_grid_each() -> None:
    check_pass(
        f"""g (float[1,1,2] x) => (float[1,1,1,2] y) <{WEIGHTS}> {{
            [l] y = LSTM <hidden_size = 2> (x, w, r, , , h, c) }}""",
        QuantizeLSTMDynamic(frozenset("l"), {"l": QUARTERS}),
        """g (float[1,1,2] x) => (float[1,1,1,2] y)
            <int8[1,2,8] l_W_quantized =
                {4, -4, 1, 8, 4, 0, -8, 2, 8, 2, 4, 3, 4, 12, 4, -1},
             int8[1,2,8] l_R_quantized =
                {4, 0, -2, 1, 4, 8, 0, 4, 0, 4, 2, 4, 4, -4, 3, -4},
             float[1] l_W_scale = {0.25}, int8[1] l_W_zero_point = {0},
             float[1] l_R_scale = {0.25}, int8[1] l_R_zero_point = {0},
             float[1,1,2] h, float[1,1,2] c> {
            y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 2> (x, l_W_quantized,
                l_R_quantized, , , h, c, , l_W_scale, l_W_zero_point, l_R_scale, l_R_zero_point)
        }""",
        feeds={"x": np.array([[[0, 1]]], np.float32)},
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            """g (float[1,1,2] x, float[1,8,2] w, float[1,8,2] r) => (float[1,1,1,2] y) {
                [l] y = LSTM <hidden_size = 2> (x, w, r) }""",
            id="computed weights",
        ),
        pytest.param(
            f"""g (float[1,1,2] x) => (float[1,1,1,2] y) <{WEIGHTS}> {{
                [l] y = LSTM <hidden_size = 2, layout = 1> (x, w, r) }}""",
            id="batch first",
        ),
    ],
)
def test_what_the_op_does_not_take_stays_and_says_why(text: str) -> None:
    model = check_unchanged(text, QuantizeLSTMDynamic(frozenset("l")))
    entry = ledger_of(model)["l"]
    assert entry.status == "float" and "batch-first" in entry.reason


def test_gru_stays() -> None:
    check_unchanged(
        """g (float[1,1,2] x, float[1,6,2] w, float[1,6,2] r) => (float[1,1,1,2] y) {
            [l] y = GRU <hidden_size = 2> (x, w, r) }""",
        QuantizeLSTMDynamic(frozenset("l")),
    )
