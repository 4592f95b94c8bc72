"""Any valid model in, a right model out: all of ONNX's own node models that onnxruntime runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from node_suite import Outcome, all_cases, outcome

CHUNKS = 24


@pytest.mark.parametrize("format", ["qoperator", "qdq"])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_node_models(chunk: int, format: str) -> None:
    found = [outcome(case, format) for case in all_cases()[chunk::CHUNKS]]  # type: ignore[arg-type]
    failed = [one for one in found if one.fate == "failed"]
    assert not failed, "\n".join(f"{one.name}: {one.text}" for one in failed)
    assert sum(_is_run(one) for one in found) > len(found) / 2


def _is_run(one: Outcome) -> bool:
    return one.fate != "not run by onnxruntime"
