"""Time of each node of the deployed graph, from onnxruntime's profiler."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from lucid_fx.feeds import Feed
from lucid_fx.runtime.session import Session

_WARM_UP = 2


@dataclass(frozen=True)
class Times:
    """Microseconds of one run, averaged over the samples.

    Attributes:
        nodes: by name in the optimised graph.
        ops: by op type.
        total: of all nodes.
    """

    nodes: dict[str, float]
    ops: dict[str, float]
    total: float


def profile(model: ir.Model, feeds: Sequence[Feed], *, threads: int = 1) -> Times:
    """Run the samples under the profiler, after a few runs that do not count.

    Args:
        model: as it is in the file.
        feeds: samples, at least one.
        threads: intra-op threads.
    """
    with tempfile.TemporaryDirectory(prefix="lucid_fx.") as folder:
        session = Session(model, threads=threads, profile=Path(folder) / "profile")
        for feed in [*feeds[:1]] * _WARM_UP + [*feeds]:
            session.run(feed)
        events = json.loads(session.end_profiling().read_text(encoding="utf-8"))
    runs = [event for event in events if event.get("name") == "model_run"]
    begin = min((run["ts"] for run in runs[_WARM_UP:]), default=0)
    nodes: defaultdict[str, float] = defaultdict(float)
    ops: defaultdict[str, float] = defaultdict(float)
    for event in events:
        name = event.get("name", "")
        if event.get("cat") != "Node" or not name.endswith("_kernel_time") or event["ts"] < begin:
            continue
        micros = event["dur"] / len(feeds)
        nodes[name.removesuffix("_kernel_time")] += micros
        ops[event["args"]["op_name"]] += micros
    return Times(dict(nodes), dict(ops), sum(ops.values()))
