"""Ratios of run times, measured in one process with runs that alternate."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lucid_fx.models import Feed

Runner = Callable[[Feed], object]
Clock = Callable[[], float]

_LEAST_ROUNDS = 5
_PAUSE = 0.06  # seconds
_BLOCK = 0.03  # seconds; shorter passes over the feeds are repeated to last about this long


def alternating_ratio(
    run_a: Runner,
    run_b: Runner,
    feeds: Sequence[Feed],
    *,
    seconds: float = 3.0,
    clock: Clock = time.perf_counter,
) -> float:
    """Give the median of time(a) / time(b) over pairs of runs, who goes first changing.

    Both run all feeds twice to warm up. ``clock`` may be ``time.thread_time`` for sessions with
    one thread, which other processes on the machine then do not disturb.
    """
    for feed in [*feeds, *feeds]:
        run_a(feed)
        run_b(feed)
    once = _time_block(run_b, feeds, 1, time.perf_counter)
    repeats = max(1, round(_BLOCK / max(once, 1e-6)))
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while len(ratios) < _LEAST_ROUNDS or time.perf_counter() < end:
        if len(ratios) % 2:
            b = _time_block(run_b, feeds, repeats, clock)
            a = _time_block(run_a, feeds, repeats, clock)
        else:
            a = _time_block(run_a, feeds, repeats, clock)
            b = _time_block(run_b, feeds, repeats, clock)
        ratios.append(a / b)
    return statistics.median(ratios)


def paired_ratio(
    base: Callable[[], object],
    other: Callable[[], object],
    repeats: int,
    clock: Clock = time.perf_counter,
) -> float:
    """Give the median of time(other) / time(base) over pairs of long runs; base warms up.

    Threads of onnxruntime go on spinning for a while, and who runs next would have a core less: so
    there is a pause before each, in which this core stays awake.
    """
    base()
    times = [_times_after_pause((base, other), clock) for _ in range(repeats)]
    return statistics.median(other / base for base, other in times)


def _times_after_pause(runs: Sequence[Callable[[], object]], clock: Clock) -> list[float]:
    times = []
    for run in runs:
        awake = time.perf_counter() + _PAUSE
        while time.perf_counter() < awake:
            pass
        start = clock()
        run()
        times.append(clock() - start)
    return times


def alternating_times(
    runs: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 1.0,
    least_rounds: int = _LEAST_ROUNDS,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Give each run's median seconds over rounds in which all take their turn, in changing order.

    A short run is repeated within its turn. The first turn warms up and does not count.
    """
    repeats = {}
    for name, run in runs.items():
        run()
        once = _time_calls(run, 1, time.perf_counter)
        repeats[name] = max(1, round(_BLOCK / 10 / max(once, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    end = time.perf_counter() + seconds
    while len(times[order[0]]) < least_rounds or time.perf_counter() < end:
        for name in order:
            times[name].append(_time_calls(runs[name], repeats[name], clock) / repeats[name])
        order.append(order.pop(0))
    return {name: statistics.median(found) for name, found in times.items()}


def _time_calls(run: Callable[[], object], repeats: int, clock: Clock) -> float:
    begin = clock()
    for _ in range(repeats):
        run()
    return clock() - begin


def _time_block(run: Runner, feeds: Sequence[Feed], repeats: int, clock: Clock) -> float:
    begin = clock()
    for _ in range(repeats):
        for feed in feeds:
            run(feed)
    return clock() - begin


def describe_cpu() -> str:
    """Name the CPU, and what decides how fast and how exact its integer kernels are."""
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.exists() else ""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    flags = fields.get("flags", fields.get("Features", "")).split()
    telling = [
        flag for flag in ("avx2", "avx512bw", "avx_vnni", "avx512_vnni", "asimddp") if flag in flags
    ]
    name = fields.get("model name") or platform.processor() or platform.machine()
    return f"{name} ({' '.join(telling) or platform.machine()})"
