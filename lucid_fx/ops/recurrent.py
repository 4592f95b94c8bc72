"""Recurrent ops: weights in 8 bits, activations quantized at run time."""

from lucid_fx.ops.row import OpRow

ROWS = (
    OpRow("LSTM", weight=1, why_float="its form is not one that DynamicQuantizeLSTM takes"),
    OpRow("GRU", weight=1, why_float="onnxruntime has no integer GRU"),
    OpRow("RNN", weight=1, why_float="onnxruntime has no integer RNN"),
)
