"""Times of the parts of a prediction: the duration of each chunk (or copy), and the gaps between them.

A runtime with several programs records when each is called and returns: two clock readings per part, made only while
`marks` is a list. A sample is the sum of its parts, the gaps between them, and the rest before and after.
"""

from dataclasses import dataclass

from ane_sweep.bridge.figures import Metric
from ane_sweep.stats.samples import quantile
from ane_sweep.worker.runtimes._runtime import Runtime
from ane_sweep.worker.timing.sampling import Samples

SHOWN = 200  # predictions whose parts are written down
COSTLY = 8  # ops that are named


def start_marks(runtime: Runtime) -> None:
    """Let the runtime record the times of its parts from now on, if it has several."""
    runtime.marks = [] if runtime.parts > 1 else None


@dataclass(frozen=True)
class SplitSample:
    """One steady sample in milliseconds, a mean over its loops: each part, each gap between parts, the rest."""

    parts: list[float]
    gaps: list[float]
    rest: float


def collect_samples(runtime: Runtime, taken: Samples) -> tuple[list[SplitSample], list[list[float]]]:
    """Stop recording; return the steady samples by part and the clock readings of all predictions.

    Both are empty for a runtime with one part, and if calls are missing.
    """
    marks, width = runtime.marks, 2 * runtime.parts
    runtime.marks = None
    early = len(taken.starts) - len(taken.steady_s) - (taken.after_idle_s is not None)
    wanted = early + taken.loops * len(taken.steady_s) + (taken.after_idle_s is not None)
    if not marks or len(marks) != wanted * width:
        return [], []
    calls = [marks[at : at + width] for at in range(0, len(marks), width)]
    steady = []
    for n, seconds in enumerate(taken.steady_s):
        own = calls[early + taken.loops * n : early + taken.loops * (n + 1)]
        steps = [1000 * sum(call[at + 1] - call[at] for call in own) / len(own) for at in range(width - 1)]
        steady.append(SplitSample(steps[::2], steps[1::2], 1000 * seconds - sum(steps)))
    return steady, calls


def list_metrics(what: str, steady: list[SplitSample], source: str) -> list[Metric]:
    """Return `latency_chunk_1_median_ms`, `latency_gap_1_median_ms` (after chunk 1), and latency_gaps_median_ms.

    The last metric is all time outside parts. Copies have separate medians (runtimes/_copies.py).
    """
    if not steady:
        return []
    figures = {"latency_gaps_median_ms": [sum(one.gaps) + one.rest for one in steady]}
    if what == "chunk":
        for n in range(len(steady[0].parts)):
            figures[f"latency_chunk_{n + 1}_median_ms"] = [one.parts[n] for one in steady]
        for n in range(len(steady[0].gaps)):
            figures[f"latency_gap_{n + 1}_median_ms"] = [one.gaps[n] for one in steady]
    return [Metric(name, quantile(values, 0.5), "ms", source=source) for name, values in figures.items()]


def describe_calls(what: str, calls: list[list[float]]) -> dict[str, object]:
    """Return when each part began and ended, by the clock of the samples, for samples.json."""
    return {"parts": {"what": what, "calls": calls[:SHOWN], "left_out": max(0, len(calls) - SHOWN)}} if calls else {}


def rank_costs(times: list[tuple[str, str, int, float]], source: str) -> dict[str, object]:
    """Return the ops that took longest, from (name, type, number of the chunk, seconds) of one prediction's ops."""
    total = sum(seconds for *_, seconds in times)
    if not total:
        return {}
    ops = [
        {"op": name, "type": kind, "chunk": chunk, "share": round(seconds / total, 4)}
        for name, kind, chunk, seconds in sorted(times, key=lambda one: -one[3])[:COSTLY]
    ]
    return {"kind": "measured", "source": source, "ops": ops}
