"""What onnxruntime really runs: each node's fate, findings with fixes, times, a CoreML forecast."""

from lucid_fx.explaining.coreml import Forecast, forecast
from lucid_fx.explaining.deployed import Arithmetic, Deployed, Fate, arithmetic
from lucid_fx.explaining.explanation import Explanation, Provider, explain
from lucid_fx.explaining.rules import RULES, Finding, FindingsError, Rule
from lucid_fx.explaining.timing import Times, profile

__all__ = [
    "RULES",
    "Arithmetic",
    "Deployed",
    "Explanation",
    "Fate",
    "Finding",
    "FindingsError",
    "Forecast",
    "Provider",
    "Rule",
    "Times",
    "arithmetic",
    "explain",
    "forecast",
    "profile",
]
