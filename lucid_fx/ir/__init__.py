"""Helpers over onnx_ir: walking, names, provenance, the ledger, verification, partition."""
