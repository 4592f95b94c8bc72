"""Any valid model in, a right model out: all of ONNX's own node models that onnxruntime runs."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from node_suite import FORMATS, Format, all_cases, everything_on_codes, has_kernel, outcome

CHUNKS = 16


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("everything", [False, True], ids=["chosen", "everything"])
def test_node_models(chunk: int, format: Format, everything: bool) -> None:
    cases = all_cases()[chunk::CHUNKS]
    if everything or format == "qdq":  # the others do not differ from one run to the next
        cases = [case for case in cases if has_kernel(case)]
    with everything_on_codes() if everything else nullcontext():
        found = [outcome(case, format) for case in cases]
    failed = [one for one in found if one.fate == "failed"]
    assert not failed, "\n".join(f"{one.name}: {one.text}" for one in failed)
    by_onnxruntime = [one for one in found if one.fate != "not run by onnxruntime"]
    refused = [one for one in by_onnxruntime if one.fate == "refused"]
    assert len(by_onnxruntime) > 0.7 * len(found) and len(refused) < 0.1 * len(found)
    assert not everything or any(one.fate == "quantized" for one in found)
