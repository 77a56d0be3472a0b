"""Stage `latency`: how long one prediction takes, on whatever runtime the cell asks for.

The first call, the warm-ups and the steady samples are kept apart and all written down (samples.json); the figures come
from the steady ones. Nothing but the prediction stands between two readings of the clock.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ane_sweep.errors import StageError, Unavailable
from ane_sweep.stages import StageResult, _statistics, metric


@dataclass
class Samples:
    """Seconds of each call: the very first, then the warm-ups, then those that count."""

    first_s: float
    warmup_s: list[float]
    steady_s: list[float]


def measure(
    call: Callable[[], Any], *, clock: Callable[[], float], warmup: int, samples: int, max_seconds: float
) -> Samples:
    """Time `call` once, then `warmup` times, then up to `samples` times.

    After `max_seconds` (of the clock, counted from the first call) no further call begins; at least one steady sample
    is taken all the same. Python's garbage collector is off meanwhile.
    """
    started = clock()
    deadline = started + max_seconds
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        first = _timed(call, clock)
        warm: list[float] = []
        while len(warm) < warmup and clock() < deadline:
            warm.append(_timed(call, clock))
        steady = [_timed(call, clock)]
        while len(steady) < samples and clock() < deadline:
            steady.append(_timed(call, clock))
    finally:
        if was_on:
            gc.enable()
    return Samples(first, warm, steady)


def _timed(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Leaves samples.json.

    params    runtime, compute_units, policy {warmup, samples, max_seconds}; model, weights, variant, seq_len for
    torch_eager inputs    program or checkpoint (what the runtime needs), reference (its first input is predicted)
    metrics   latency_first_ms, latency_median_ms, latency_iqr_ms, latency_p90_ms, load_ms, peak_memory_bytes realised
    what the runtime says of itself, samples taken, and `unstable` with a sentence when they scatter Raises
    errors.Unavailable where this host has no such runtime.
    """
    from ane_sweep import runtimes

    runtime = runtimes.get(params["runtime"])
    reason = runtime.available()
    if reason:
        raise Unavailable(f"runtime={params['runtime']} {reason}")
    values = first_input(inputs["reference"])
    clock = time.perf_counter
    start = clock()
    loaded = runtime.load(params, inputs)
    load_s = clock() - start
    policy = params["policy"]
    taken = measure(lambda: loaded.predict(values), clock=clock, **_known(policy))
    (out / "samples.json").write_text(json.dumps({"unit": "s", "clock": "perf_counter", **asdict(taken)}, indent=1))
    return _result(taken, load_s, loaded.realised, params["runtime"], policy)


def _known(policy: dict[str, Any]) -> dict[str, Any]:
    return {name: policy[name] for name in ("warmup", "samples", "max_seconds")}


def first_input(reference: Path) -> dict[str, Any]:
    """The first of the stacked inputs in reference/inputs.npz, ready to predict. Raises StageError when there is
    none.
    """
    import numpy as np

    with np.load(reference / "inputs.npz") as stored:
        found = {name: np.ascontiguousarray(stored[name][0]) for name in stored.files if name != "valid"}
    if not found:
        raise StageError(f"{reference / 'inputs.npz'}: holds no inputs; delete the folder and run again")
    return found


def _result(
    taken: Samples, load_s: float, realised: dict[str, Any], runtime: str, policy: dict[str, Any]
) -> StageResult:
    summary = _statistics.summarise([1000 * seconds for seconds in taken.steady_s])
    realised = {**realised, "samples": summary.count, "warmup": len(taken.warmup_s)}
    if summary.count < policy["samples"] or len(taken.warmup_s) < policy["warmup"]:
        realised["cut_short"] = (
            f"{summary.count} of {policy['samples']} samples in latency.max_seconds={policy['max_seconds']}"
        )
    unstable = _statistics.instability(summary)
    if unstable:
        realised["unstable"] = unstable
    figures = {
        "latency_first_ms": 1000 * taken.first_s,
        "latency_median_ms": summary.median,
        "latency_iqr_ms": summary.iqr,
        "latency_p90_ms": summary.p90,
        "load_ms": 1000 * load_s,
    }
    metrics = [metric(name, value, "ms", source=runtime) for name, value in figures.items()]
    metrics.append(metric("peak_memory_bytes", peak_memory_bytes(), "bytes", source=runtime))
    return StageResult(metrics, realised)


def peak_memory_bytes(platform: str = sys.platform) -> int:
    """Largest resident size of this process so far; includes the interpreter and the libraries."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform == "darwin" else peak * 1024  # bytes on macOS, KiB on Linux
