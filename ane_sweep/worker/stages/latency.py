"""latency: times one prediction on the cell's runtime.

The first call, the early ones, the steady samples and the call after a pause are recorded separately (samples.json, and
the record's `timings`); the figures come from the steady ones. Only the prediction runs between two clock readings.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from ane_sweep.bridge import protocol
from ane_sweep.bridge.figures import Look, Metric, Timing
from ane_sweep.bridge.protocol import WAITING_VARIABLES
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.stages import Stage
from ane_sweep.stats import samples
from ane_sweep.worker import params, runtimes
from ane_sweep.worker.feeds.arrays import Inputs, list_further_shapes
from ane_sweep.worker.params import CopiesParams, Policy
from ane_sweep.worker.runtimes import _copies
from ane_sweep.worker.runtimes._runtime import Runtime
from ane_sweep.worker.stages import StageResult
from ane_sweep.worker.timing import parts, sampling, stability
from ane_sweep.worker.timing.sampling import Samples

STAGE = Stage(
    order=120, many="timings", timeout_s=1800, base_gib=0.28, per_byte=1.18, base_s=0.2, per_gb_s=0.3,
    stored=False, alone=True, runs_program=True, pooled=True,
    warm=("ane_sweep.worker.feeds.arrays",),
)  # fmt: skip


class Params(params.RuntimeParams, frozen=True, kw_only=True):
    """Parameters of this stage; the runtime reads more of the same JSON."""

    policy: Policy
    check: bool = False
    round: int = 1
    gate: Look | None = None
    copies: CopiesParams | None = None


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Time the program and write samples.json. Raises errors.Unavailable if this host lacks the runtime.

    params    runtime, compute_units, policy {warmup, samples, max_seconds, idle_s}; check (the time answers nothing, so
              no warnings or costs are recorded); round (number of this process among latency.repeats), gate (the
              machine's state before); copies {count, kind, order} if there are several; model, weights, variant,
              seq_len for torch_eager
    inputs    program or checkpoint, as the runtime needs; reference (its first input is predicted)
    metrics   latency_{first,early,median,iqr,p90,p99,low,high,after_idle,native_median}_ms, load_ms,
              peak_memory_bytes; figures that were not measured are left out. With cache=stateful they belong to the
              last token's decoding step, and latency_prefill_{first,median,iqr}_ms to the whole window's prefill. For
              inputs of several shapes, latency_SHAPE_{first,median,iqr}_ms of each shape but the default. With batch=n
              also latency_per_input_ms, its median over n. For a chain latency_{chunk,gap}_N_median_ms and
              latency_gaps_median_ms (timing/parts.py).
              With copies, seconds are per prediction, and each copy has figures of its own (runtimes/_copies.py)
    realised  what the runtime reports, samples taken, `unstable` with a sentence if they scatter; of a runtime with
              threads of its own `thread_wait`, the way in which they wait for work; in the first round, if the runtime
              can measure them, `costs`: the ops that take longest, from one more prediction after all samples
    timing    this process's samples, for the record
    """
    settings = Params.read(params)
    runtimes.check_available(settings.runtime)
    values = Inputs(inputs["reference"])[0]
    clock = time.perf_counter
    start = clock()
    copies = _copies.load(runtimes.get(settings.runtime), params, inputs, clock) if settings.copies else None
    loaded: Runtime = copies or runtimes.load(params, inputs)
    load_s = clock() - start
    call, prefill = loaded.timed(loaded.prepare(values))
    policy, timer = settings.policy, loaded.clock or clock
    measure = _prepare_measurement(settings, timer)
    parts.start_marks(loaded)
    taken = measure(call, idle_s=choose_pause(policy.idle_s, settings.runtime), native=lambda: loaded.last_native_ms)
    steady, calls = parts.collect_samples(loaded, taken)
    if copies:
        taken = copies.per_prediction(taken)
    own = "perf_counter" if timer is clock else "the device's"
    # By the clock of the samples; `unix` added to that clock gives the time.
    began = {"load": start, "load_s": load_s, "unix": time.time() - time.perf_counter(), "pid": os.getpid()}
    written = {"unit": "s", "clock": own, **asdict(taken), "began": began}
    written |= parts.describe_calls(loaded.part, calls) | ({"copies": copies.parts} if copies else {})
    result = _report(taken, load_s, loaded.realised, settings)
    result.metrics += parts.list_metrics(loaded.part, steady, settings.runtime)
    if prefill and result.timing:
        of_window = measure(prefill)
        written["prefill"] = asdict(of_window)
        result.metrics += _summarise_briefly(of_window, "prefill", settings.runtime)
        result.timing = replace(result.timing, prefill_median_ms=_compute_median_ms(of_window.steady_s))
    if copies:
        result.metrics += copies.metrics(settings.runtime)
    else:
        written |= _time_further_shapes(loaded, inputs["reference"], measure, result, settings.runtime)
    if settings.round == 1 and not (settings.check or copies or prefill):
        costs = parts.rank_costs(loaded.op_times(loaded.prepare(values)), settings.runtime)
        result.realised |= {"costs": costs} if costs else {}
    (out / "samples.json").write_text(json.dumps(written, indent=1))
    return result


def _time_further_shapes(
    loaded: Runtime, reference: Path, measure: Callable[..., Samples], result: StageResult, runtime: str
) -> dict[str, object]:
    """Time each further shape of the inputs like the default one; return the samples by shape, for samples.json."""
    by_shape = {}
    for shape in list_further_shapes(reference):
        call, _ = loaded.timed(loaded.prepare(Inputs(reference, f"inputs@{shape}.npz")[0]))
        taken = measure(call)
        result.metrics += _summarise_briefly(taken, shape, runtime)
        by_shape[shape] = asdict(taken)
    return {"shapes": by_shape} if by_shape else {}


def _prepare_measurement(settings: Params, clock: sampling.Clock) -> Callable[..., Samples]:
    """Return the function `measure` with the settings that all measurements of a task share."""
    return partial(
        sampling.measure,
        warmup=settings.policy.warmup,
        samples=settings.policy.samples,
        max_seconds=settings.policy.max_seconds,
        check=settings.check,
        clock=clock,
        tick_s=sampling.measure_tick(clock),
    )


def _summarise_briefly(taken: Samples, name: str, runtime: str) -> list[Metric]:
    """Return three figures of a further measurement: prefill, or a further shape of the inputs."""
    summary = samples.summarise([1000 * seconds for seconds in taken.steady_s])
    figures = {"first": 1000 * taken.first_s, "median": summary.median, "iqr": summary.iqr}
    return [Metric(f"latency_{name}_{figure}_ms", value, "ms", source=runtime) for figure, value in figures.items()]


def choose_pause(idle_s: float | None, runtime: str) -> float:
    """Return the pause in seconds before the last call: as set, or as long as this runtime's hardware needs to fall asleep."""
    return float(traits(runtime).idle_s if idle_s is None else idle_s)


def _report(taken: Samples, load_s: float, realised: dict[str, object], settings: Params) -> StageResult:
    policy, runtime = settings.policy, settings.runtime
    summary = samples.summarise([1000 * seconds for seconds in taken.steady_s])
    realised = {**realised, "samples": summary.count, "warmup": len(taken.warmup_s), "loops": taken.loops}
    if realised.get("threads"):
        waiting = (f"{name}={os.environ[name]}" for name in WAITING_VARIABLES if name in os.environ)
        realised["thread_wait"] = " ".join(waiting) or "default"
    is_short = summary.count < policy.samples or len(taken.warmup_s) < policy.warmup
    if is_short and not settings.check:
        realised["cut_short"] = (
            f"{summary.count} of {policy.samples} samples in latency.max_seconds={policy.max_seconds}"
        )
    if (unstable := stability.describe_instability(summary)) and not settings.check:
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
    if isinstance(batch := realised.get("batch"), int) and batch > 1:
        figures["latency_per_input_ms"] = summary.median / batch
    metrics = [Metric(name, value, "ms", source=runtime) for name, value in figures.items() if value is not None]
    metrics.append(Metric("peak_memory_bytes", protocol.peak_bytes(), "bytes", source=runtime))
    return StageResult(metrics, realised, timing=_to_timing(taken, summary.median, load_s, settings))


def _compute_median_ms(seconds: list[float]) -> float | None:
    return 1000 * samples.quantile(seconds, 0.5) if seconds else None


def _to_timing(taken: Samples, median_ms: float, load_s: float, settings: Params) -> Timing:
    """Return the samples for the record, in milliseconds with six significant digits."""

    def ms(seconds: float) -> float:
        return float(f"{1000 * seconds:.6g}")

    return Timing(
        round=settings.round,
        median_ms=median_ms,
        load_ms=1000 * load_s,
        first_ms=ms(taken.first_s),
        warmup_ms=[ms(sample) for sample in taken.warmup_s],
        samples_ms=[ms(sample) for sample in taken.steady_s],
        loops=taken.loops,
        after_idle_ms=None if taken.after_idle_s is None else ms(taken.after_idle_s),
        idle_s=taken.idle_s,
        notes=[] if settings.check else stability.list_notes(taken),
        gate=settings.gate,
    )
