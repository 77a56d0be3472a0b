"""Stage `latency`: how long one prediction takes, on whatever runtime the cell asks for.

The first call, the early ones, the steady samples and the call after a pause are kept apart and all written down
(samples.json, and the record's `timings`); the figures come from the steady ones. Nothing but the prediction stands
between two readings of the clock.
"""

import json
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ane_sweep.bridge import conversion, protocol
from ane_sweep.bridge.figures import Look, Metric, Timing
from ane_sweep.bridge.protocol import WAITING_VARIABLES
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import Unavailable
from ane_sweep.stats import samples
from ane_sweep.worker import runtimes
from ane_sweep.worker.feeds.arrays import Inputs, list_further_shapes
from ane_sweep.worker.runtimes import _copies
from ane_sweep.worker.stages import StageResult
from ane_sweep.worker.timing import parts, sampling, stability

STAGE = Stage(
    order=120, many="timings", timeout_s=1800, base_gib=0.6, per_byte=1.2, guess_s=2, guess_per_gb=15,
    stored=False, alone=True, runs_program=True, pooled=True,
    warm=("ane_sweep.worker.feeds.arrays",),
)  # fmt: skip


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """Leaves samples.json.

    params    runtime, compute_units, policy {warmup, samples, max_seconds, idle_s}; round (which of
              latency.repeats processes this is), gate (how the machine was found); copies {count, kind, order} where
              there are several; model, weights, variant, seq_len for torch_eager
    inputs    program or checkpoint (what the runtime needs), reference (its first input is predicted)
    metrics   latency_{first,early,median,iqr,p90,p99,low,high,after_idle,native_median}_ms, load_ms,
              peak_memory_bytes; those that were not measured are left out. With cache=stateful they are of the
              last token's decoding step, and latency_prefill_{first,median,iqr}_ms of the whole window's prefill.
              Of an input of several shapes, latency_SHAPE_{first,median,iqr}_ms of each but the default.
              With batch=n also latency_per_input_ms, its median over n.
              Of a chain latency_{chunk,gap}_N_median_ms and latency_gaps_median_ms (parts.py).
              With copies, seconds are per prediction, and each copy's own stand beside them (runtimes/_copies.py)
    realised  what the runtime says of itself, samples taken, `unstable` with a sentence when they scatter, and of a
              runtime with threads of its own `thread_wait`: how they wait for work; in the first round of a runtime
              that can tell, `costs`: the ops that take longest, from one more prediction behind all samples
    timing    this process's samples, for the record

    Raises errors.Unavailable where this host has no such runtime.
    """
    runtime = runtimes.get(params["runtime"])
    if reason := runtime.available():
        raise Unavailable(f"runtime={params['runtime']} {reason}")
    values = Inputs(inputs["reference"])[0]
    clock = time.perf_counter
    start = clock()
    copies = _copies.load(runtime, params, inputs, clock) if "copies" in params else None
    loaded: runtimes.Runtime = copies or runtimes.load(params, inputs)
    load_s = clock() - start
    policy = params["policy"]
    call, prefill = loaded.timed(loaded.prepare(values))
    common = _choose_settings(policy, loaded.clock or clock)
    parts.start_marks(loaded)
    taken = sampling.measure(
        call,
        **common,
        idle_s=choose_pause(policy, params["runtime"]),
        native=lambda: loaded.last_native_ms,
    )
    steady, calls = parts.collect_samples(loaded, taken)
    if copies:
        taken = copies.per_prediction(taken)
    own = "perf_counter" if (loaded.clock or clock) is clock else "the device's"
    written = {"unit": "s", "clock": own, **asdict(taken), "began": _describe_start(start, load_s)}
    written |= parts.describe_calls(loaded.part, calls) | ({"copies": copies.parts} if copies else {})
    result = _report(taken, load_s, loaded.realised, params)
    result.metrics += parts.list_metrics(loaded.part, steady, params["runtime"])
    if prefill and result.timing:
        whole = sampling.measure(prefill, **common)
        written["prefill"] = asdict(whole)
        result.metrics += _summarise_briefly(whole, "prefill", params["runtime"])
        result.timing = replace(result.timing, prefill_median_ms=_compute_median_ms(whole.steady_s))
    if copies:
        result.metrics += copies.metrics(params["runtime"])
    else:
        written |= _time_further_shapes(loaded, inputs["reference"], common, result, params["runtime"])
    if params.get("round", 1) == 1 and not copies and not prefill:
        said = parts.rank_costs(loaded.op_times(loaded.prepare(values)), params["runtime"])
        result.realised |= {"costs": said} if said else {}
    (out / "samples.json").write_text(json.dumps(written, indent=1))
    return result


def _time_further_shapes(
    loaded: runtimes.Runtime, reference: Path, common: dict[str, Any], result: StageResult, runtime: str
) -> dict[str, Any]:
    """Each further shape of the inputs, timed as the default one: for samples.json, by shape."""
    found = {}
    for shape in list_further_shapes(reference):
        call, _ = loaded.timed(loaded.prepare(Inputs(reference, f"inputs@{shape}.npz")[0]))
        taken = sampling.measure(call, **common)
        result.metrics += _summarise_briefly(taken, shape, runtime)
        found[shape] = asdict(taken)
    return {"shapes": found} if found else {}


def _describe_start(start: float, load_s: float) -> dict[str, Any]:
    """When loading began and how long it took, by the clock of the samples; what that clock shows is `unix` less it."""
    return {"load": start, "load_s": load_s, "unix": time.time() - time.perf_counter(), "pid": os.getpid()}


def _choose_settings(policy: dict[str, Any], clock: sampling.Clock) -> dict[str, Any]:
    """What holds for every measurement of a task."""
    asked = {name: policy[name] for name in ("warmup", "samples", "max_seconds")}
    return {**asked, "clock": clock, "tick_s": sampling.measure_tick(clock)}


def _summarise_briefly(taken: sampling.Samples, what: str, runtime: str) -> list[Metric]:
    """Of what is timed beside the default prediction: prefill, where the other figures are of one step; a further shape."""
    summary = samples.summarise([1000 * seconds for seconds in taken.steady_s])
    figures = {"first": 1000 * taken.first_s, "median": summary.median, "iqr": summary.iqr}
    return [Metric(f"latency_{what}_{name}_ms", value, "ms", source=runtime) for name, value in figures.items()]


def choose_pause(policy: dict[str, Any], runtime: str) -> float:
    """The pause before the last call: what was asked for, or what this runtime's hardware needs to fall asleep."""
    asked = policy.get("idle_s")
    return float(traits(runtime).idle_s if asked is None else asked)


def _report(taken: sampling.Samples, load_s: float, realised: dict[str, Any], params: dict[str, Any]) -> StageResult:
    policy, runtime = params["policy"], params["runtime"]
    summary = samples.summarise([1000 * seconds for seconds in taken.steady_s])
    realised = {**realised, "samples": summary.count, "warmup": len(taken.warmup_s), "loops": taken.loops}
    if realised.get("threads"):
        realised["thread_wait"] = _describe_thread_wait()
    if summary.count < policy["samples"] or len(taken.warmup_s) < policy["warmup"]:
        realised["cut_short"] = (
            f"{summary.count} of {policy['samples']} samples in latency.max_seconds={policy['max_seconds']}"
        )
    unstable = stability.describe_instability(summary)
    if unstable:
        realised["unstable"] = unstable
    figures = {
        "latency_first_ms": 1000 * taken.first_s,
        "latency_early_ms": _compute_median_ms(taken.warmup_s),
        "latency_median_ms": summary.median,
        "latency_iqr_ms": summary.iqr,
        "latency_p90_ms": summary.p90,
        "latency_p99_ms": summary.p99,
        "latency_low_ms": summary.low,
        "latency_high_ms": summary.high,
        "latency_after_idle_ms": _compute_median_ms([] if taken.after_idle_s is None else [taken.after_idle_s]),
        "latency_native_median_ms": _compute_median_ms(taken.native_s),
        "load_ms": 1000 * load_s,
    }
    if (batch := realised.get("batch", 1)) > 1:
        figures["latency_per_input_ms"] = summary.median / batch
    metrics = [Metric(name, value, "ms", source=runtime) for name, value in figures.items() if value is not None]
    metrics.append(Metric("peak_memory_bytes", protocol.peak_bytes(), "bytes", source=runtime))
    return StageResult(metrics, realised, timing=_to_timing(taken, summary.median, load_s, params))


def _describe_thread_wait() -> str:
    """How this process's threads wait for work: what of it was set, else the library's own default."""
    return " ".join(f"{name}={os.environ[name]}" for name in WAITING_VARIABLES if name in os.environ) or "default"


def _compute_median_ms(seconds: list[float]) -> float | None:
    return 1000 * samples.quantile(seconds, 0.5) if seconds else None


def _to_timing(taken: sampling.Samples, median_ms: float, load_s: float, params: dict[str, Any]) -> Timing:
    """The samples for the record: milliseconds, six figures each."""

    def ms(seconds: float) -> float:
        return float(f"{1000 * seconds:.6g}")

    return Timing(
        round=params.get("round", 1),
        median_ms=median_ms,
        load_ms=1000 * load_s,
        first_ms=ms(taken.first_s),
        warmup_ms=[ms(sample) for sample in taken.warmup_s],
        samples_ms=[ms(sample) for sample in taken.steady_s],
        loops=taken.loops,
        after_idle_ms=None if taken.after_idle_s is None else ms(taken.after_idle_s),
        idle_s=taken.idle_s,
        notes=stability.list_notes(taken),
        gate=None if params.get("gate") is None else conversion.convert(params["gate"], Look),
    )
