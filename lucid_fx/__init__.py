"""Whole-graph post-training quantization of ONNX models for onnxruntime."""

from lucid_fx import quantization
from lucid_fx.bisecting import Bisection, bisect
from lucid_fx.comparing import compare
from lucid_fx.comparison import Comparison
from lucid_fx.diffing import GraphDiff, diff
from lucid_fx.errors import LucidFxError, LucidFxWarning
from lucid_fx.explaining import Explanation, explain
from lucid_fx.graph_module import GraphModule
from lucid_fx.prepared import PreparedModule
from lucid_fx.reporting import report
from lucid_fx.target import TARGETS, Target
from lucid_fx.tracing import trace
from lucid_fx.weight_only import adopt_matmul_nbits, quantize_weights
from lucid_fx.workflow import calibrate, convert_fx, fuse, prepare_fx, quantize

__version__ = "0.1.0"

__all__ = [
    "TARGETS",
    "Bisection",
    "Comparison",
    "Explanation",
    "GraphDiff",
    "GraphModule",
    "LucidFxError",
    "LucidFxWarning",
    "PreparedModule",
    "Target",
    "adopt_matmul_nbits",
    "bisect",
    "calibrate",
    "compare",
    "convert_fx",
    "diff",
    "explain",
    "fuse",
    "prepare_fx",
    "quantization",
    "quantize",
    "quantize_weights",
    "report",
    "trace",
]
