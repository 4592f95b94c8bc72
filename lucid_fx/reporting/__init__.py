"""One self-contained HTML file about a quantized model: graphs, ledger, errors, times."""

from lucid_fx.reporting.report import report

__all__ = ["report"]
