"""Inside a prediction: how long each chunk (or copy) of it took, and what passed between them.

A runtime that drives several programs notes when it calls each and when that call comes back: two readings of the clock a
part, made only while they are asked for. So of every sample the parts, the gaps between them and what lies before the first
and behind the last add up to the whole.
"""

from dataclasses import dataclass
from typing import Any

from ane_sweep.bridge.figures import Metric
from ane_sweep.stats.samples import quantile
from ane_sweep.worker.runtimes._runtime import Runtime
from ane_sweep.worker.stages._timing import Samples

SHOWN = 200  # predictions whose parts are written down
COSTLY = 8  # ops that are named


def attach(runtime: Runtime) -> None:
    """From now on the runtime notes its parts, where it has several."""
    runtime.marks = [] if runtime.parts > 1 else None


@dataclass(frozen=True)
class Sample:
    """Milliseconds of one steady sample, a mean over its loops: each part, each gap behind a part but the last, the rest."""

    parts: list[float]
    gaps: list[float]
    rest: float


def detach(runtime: Runtime, taken: Samples) -> tuple[list[Sample], list[list[float]]]:
    """(the steady samples, all predictions as readings); nothing of a runtime in one part, or whose calls came back early."""
    marks, width = runtime.marks, 2 * runtime.parts
    runtime.marks = None
    early = 1 + len(taken.warmup_s)
    wanted = early + taken.loops * len(taken.steady_s) + (taken.after_idle_s is not None)
    if not marks or len(marks) != wanted * width:
        return [], []
    calls = [marks[at : at + width] for at in range(0, len(marks), width)]
    steady = [
        _sample(calls[early + taken.loops * n : early + taken.loops * (n + 1)], seconds)
        for n, seconds in enumerate(taken.steady_s)
    ]
    return steady, calls


def _sample(calls: list[list[float]], seconds: float) -> Sample:
    steps = [1000 * sum(call[n + 1] - call[n] for call in calls) / len(calls) for n in range(len(calls[0]) - 1)]
    return Sample(steps[::2], steps[1::2], 1000 * seconds - sum(steps))


def metrics(what: str, steady: list[Sample], source: str) -> list[Metric]:
    """`latency_chunk_1_median_ms`, `latency_gap_1_median_ms` (behind chunk 1), and latency_gaps_median_ms: all that is in no
    part. Copies have medians of their own (runtimes/_copies.py)."""
    if not steady:
        return []
    figures = {"latency_gaps_median_ms": [sum(one.gaps) + one.rest for one in steady]}
    if what == "chunk":
        for n in range(len(steady[0].parts)):
            figures[f"latency_chunk_{n + 1}_median_ms"] = [one.parts[n] for one in steady]
        for n in range(len(steady[0].gaps)):
            figures[f"latency_gap_{n + 1}_median_ms"] = [one.gaps[n] for one in steady]
    return [Metric(name, quantile(values, 0.5), "ms", source=source) for name, values in figures.items()]


def written(what: str, calls: list[list[float]]) -> dict[str, Any]:
    """For samples.json: when each part began and ended, by the clock of the samples."""
    return {"parts": {"what": what, "calls": calls[:SHOWN], "left_out": max(0, len(calls) - SHOWN)}} if calls else {}


def costs(times: list[tuple[str, str, int, float]], source: str) -> dict[str, Any]:
    """The ops that took longest of one prediction: (name, type, number of its chunk, seconds)."""
    total = sum(seconds for *_, seconds in times)
    if not total:
        return {}
    worst = sorted(times, key=lambda one: -one[3])[:COSTLY]
    ops = [
        {"op": name, "type": kind, "chunk": chunk, "share": round(seconds / total, 4)}
        for name, kind, chunk, seconds in worst
    ]
    return {"kind": "measured", "source": source, "ops": ops}
