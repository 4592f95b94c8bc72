"""explain: the deployed truth about a model, as data and as text."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lucid_fx.errors import ConfigError
from lucid_fx.explaining.coreml import Forecast, forecast
from lucid_fx.explaining.deployed import Deployed, Fate
from lucid_fx.explaining.rules import RULES, Finding, findings
from lucid_fx.explaining.timing import Times, profile
from lucid_fx.native.library import cpu_isa
from lucid_fx.target import Target, find_target
from lucid_fx.tracing import trace

Provider = Literal["cpu", "coreml"]


@dataclass(frozen=True)
class Explanation:
    """What onnxruntime makes of a model.

    Attributes:
        fates: one for each node of the model, in its order.
        findings: what costs speed or accuracy, the gravest first.
        counts: nodes of the optimised graph by what they compute with (`Arithmetic`).
        optimised_ops: nodes of the optimised graph by op type.
        times: of the model, where samples were given.
        float_times: of the float model, where it was given too.
        coreml: the forecast for CoreML, where it was asked for.
    """

    fates: list[Fate]
    findings: list[Finding]
    counts: dict[str, int]
    optimised_ops: dict[str, int]
    times: Times | None = None
    float_times: Times | None = None
    coreml: Forecast | None = None

    def failing(self, rules: Sequence[str]) -> list[Finding]:
        """The findings of these rules.

        Raises:
            ConfigError: there is no such rule.
        """
        known = {rule.name for rule in RULES}
        for name in rules:
            if name not in known:
                raise ConfigError(f"there is no rule {name!r}", hint=f"known are {sorted(known)}")
        return [finding for finding in self.findings if finding.rule in rules]

    def to_json(self) -> str:
        """One JSON object with all of it."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def to_text(self, rows: int = 20) -> str:
        """Counts, findings, the slowest nodes, and what became of the nodes, as text."""
        return "\n".join(_text(self, rows))

    def __str__(self) -> str:
        return self.to_text()


def explain(
    model: Any,
    *,
    float_model: Any = None,
    data: Sequence[Any] = (),
    provider: Provider = "cpu",
    target: str | Target = "auto",
    threads: int = 1,
) -> Explanation:
    """Load a model as onnxruntime will run it, and tell what became of every node.

    Args:
        model: anything that `trace` takes; run as it is, without passes of ours.
        float_model: what it was made from, to compare times with.
        data: samples to time on, see `calibrate`.
        provider: ``"coreml"`` adds the forecast of what CoreML would take.
        target: the CPU to judge kernels by; ``"auto"`` is this machine.
        threads: of the timed sessions.

    Raises:
        ModelError: onnxruntime does not take the model.
        DataError: a sample that does not fit the model.
    """
    if provider not in ("cpu", "coreml"):
        raise ConfigError(f"there is no provider {provider!r}", hint="known are cpu and coreml")
    module = trace(model, allow_quantized=True)
    deployed = Deployed(module.model)
    feeds = [module.feed(sample) for sample in data]
    float_times = None
    if float_model is not None and feeds:
        float_times = profile(trace(float_model).model, feeds, threads=threads)
    return Explanation(
        fates=deployed.fates,
        findings=findings(deployed, find_target(target, cpu_isa())),
        counts=dict(deployed.counts()),
        optimised_ops=dict(deployed.ops()),
        times=profile(module.model, feeds, threads=threads) if feeds else None,
        float_times=float_times,
        coreml=forecast(module.model) if provider == "coreml" else None,
    )


def _text(found: Explanation, rows: int) -> list[str]:
    by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(found.counts.items()))
    lines = [f"onnxruntime runs {sum(found.counts.values())} nodes: {by_kind}"]
    fates = Counter(fate.fate for fate in found.fates)
    lines.append("of ours: " + ", ".join(f"{n} {fate}" for fate, n in sorted(fates.items())))
    lines += ["", "findings:" if found.findings else "no findings"]
    lines += _findings_text(found.findings, rows)
    if found.times is not None:
        lines += ["", *_times_text(found.times, found.float_times, rows)]
    if found.coreml is not None:
        lines += ["", *_coreml_text(found.coreml, len(found.fates), rows)]
    return lines


def _findings_text(every: list[Finding], rows: int) -> list[str]:
    lines = []
    for rule, group in itertools.groupby(every, lambda finding: finding.rule):
        same = list(group)
        lines += [f"  {rule}: {len(same)}; fix: {same[0].fix}"]
        lines += [f"    {finding.node}: {finding.what}" for finding in same[:rows]]
        lines += [f"    and {len(same) - rows} more"] if len(same) > rows else []
    return lines


def _times_text(times: Times, float_times: Times | None, rows: int) -> list[str]:
    total = f"{times.total:.0f} us a run"
    if float_times is not None:
        ratio = times.total / max(float_times.total, 1e-9)
        total += f", {ratio:.2f} of the float model's {float_times.total:.0f} us"
    lines = [total, "  by op type:"]
    others = float_times.ops if float_times is not None else {}
    for op in sorted({*times.ops, *others}, key=lambda op: -times.ops.get(op, 0.0))[:rows]:
        beside = f"  (float: {others.get(op, 0.0):8.1f})" if float_times is not None else ""
        lines.append(f"  {times.ops.get(op, 0.0):10.1f} us  {op}{beside}")
    lines.append("  slowest nodes:")
    slowest = sorted(times.nodes.items(), key=lambda item: -item[1])
    return lines + [f"  {micros:10.1f} us  {name}" for name, micros in slowest[:rows]]


def _coreml_text(found: Forecast, total: int, rows: int) -> list[str]:
    lines = [
        f"CoreML would take {len(found.claimed)} of {total} nodes, in {found.partitions} parts;"
        " the others:"
    ]
    why = Counter(found.reasons.values())
    return lines + [f"  {count:5d}  {reason}" for reason, count in why.most_common(rows)]
