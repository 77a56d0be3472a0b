"""`ane-sweep doctor --confirm RUN`: check a Mac's records against what this project assumes about Core ML.

Everything about Core ML here was written without a Mac. Each check below is one assumption; its state is
`confirmed`, `contradicted` (the code is wrong about Macs: please report it with the record) or `not seen`.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial

from ane_sweep import tables
from ane_sweep.bridge.record import Record, worst_psnr
from ane_sweep.bridge.runtimes import RUNTIMES, traits
from ane_sweep.terminal import NOT_ALL_OK, OK, tell

CONFIRMED, CONTRADICTED, NOT_SEEN = "confirmed", "contradicted", "not seen"
NATIVE_SLACK = 1.05  # what Core ML says a call took may not exceed what we saw, but for the clock's grain
LEAST_PSNR_DB = 40.0
Answer = tuple[str, str]  # a state, and what the records show
Judge = Callable[[Sequence[Record]], Answer]  # of the records of cells that ran on Core ML
TORCH_ON_GPU = [name for name, one in RUNTIMES.items() if one.hardware == "Apple" and one.needs == "checkpoint"]


def confirm(records: Sequence[Record], *, as_json: bool = False) -> int:
    """Print one line for each assumption and return the exit code: 1 if a record contradicts any of them."""
    found = check(records)
    scripted = any(record.host.get("stand_in") for record in records)
    if scripted:
        found = [(what, "scripted" if state == CONFIRMED else state, seen) for what, state, seen in found]
    if as_json:
        tell(stand_in=scripted, checks=[{"what": what, "state": state, "seen": seen} for what, state, seen in found])
    else:
        if scripted:
            print("a stand-in answered for the Mac: nothing here is confirmed by one")
        print(tables.aligned((state, f"{what}: {seen}") for what, state, seen in found))
    return NOT_ALL_OK if any(state == CONTRADICTED for _, state, _ in found) else OK


def check(records: Sequence[Record]) -> list[tuple[str, str, str]]:
    """Return (assumption, state, evidence in the records) for each assumption about Core ML."""
    mine = [r for r in records if traits(r.cell.get("runtime")).coreml or traits(r.realised.get("runtime")).coreml]
    found = [(what, *judge(mine)) for what, judge in CHECKS.items()]
    return [*found, ("PyTorch runs on the GPU", *_check_mps(records))]


def _check_stage(name: str, records: Sequence[Record]) -> Answer:
    """Check that a stage ended well in every record that has it."""
    ended = [stage for record in records for stage in record.stages if stage.stage == name]
    ended = [stage for stage in ended if stage.status not in ("unavailable", "blocked", "skipped")]
    if bad := [stage for stage in ended if stage.status not in ("ok", "cached")]:
        return CONTRADICTED, f"{len(bad)} of {len(ended)} ended badly, one as {bad[0].status}: {bad[0].reason}"
    return (CONFIRMED, f"{len(ended)} ended well") if ended else (NOT_SEEN, "it did not run")


def _check_plans(records: Sequence[Record]) -> Answer:
    plans = [entry for record in records for entry in record.placed("planned")]
    if not plans:
        return NOT_SEEN, "no record holds a plan"
    ops = {unit: sum(getattr(plan.ops, unit) for plan in plans) for unit in ("cpu", "gpu", "ane")}
    return (CONFIRMED if any(ops.values()) else CONTRADICTED), f"ops over {len(plans)} plans: {ops}"


def _check_order(first: str, second: str, slack: float, records: Sequence[Record]) -> Answer:
    """Check that metric `first` is at most `slack` times `second`, as a median over records with both."""
    pairs = [(record.value(first), record.value(second)) for record in records]
    shares = [a / b for a, b in pairs if a is not None and b]
    if not shares:
        return NOT_SEEN, f"no record holds both {first} and {second}"
    share = statistics.median(shares)
    return (CONFIRMED if share <= slack else CONTRADICTED), f"{share:.2f} times, median of {len(shares)}"


def _check_accuracy(records: Sequence[Record]) -> Answer:
    """Check that fp32 and fp16 programs are close to torch, as a wrong input name or layout would show."""
    values = [value for record in records if (value := worst_psnr(record)) is not None]
    if not values:
        return NOT_SEEN, "nothing was scored"
    return (CONFIRMED if min(values) >= LEAST_PSNR_DB else CONTRADICTED), f"PSNR {min(values):.1f} dB at least"


def _check_source(name: str, records: Sequence[Record]) -> Answer:
    """Check that a source of evidence gave a figure; a reason for its absence is no contradiction."""
    told = [text for r in records if (text := (r.realised.get("evidence") or {}).get(name))]
    if not told:
        return NOT_SEEN, "no evidence pass ended"
    words = ("measured", "nominal", "moderate", "heavy", "trapping", "sleeping")
    missing = [str(text) for text in told if text not in words]
    there = len(told) - len(missing)
    return (CONFIRMED, f"in {there} cells") if there else (NOT_SEEN, missing[0])


def _check_range(metric: str, low: float, high: float, unit: str, records: Sequence[Record]) -> Answer:
    values = [value for record in records if (value := record.value(metric)) is not None]
    if not values:
        return NOT_SEEN, f"no record holds {metric}"
    state = CONFIRMED if low <= min(values) and max(values) <= high else CONTRADICTED
    return state, f"{min(values):.3g} to {max(values):.3g} {unit}, believable from {low:.3g} to {high:.3g}"


def _check_units(units: str, wanted: str, records: Sequence[Record]) -> Answer:
    """Check that cells ran on the requested unit. Another unit is an observation about the program, not an error of ours."""
    asked = [r for r in records if r.cell.get("compute_units") == units and r.realised.get("verdict")]
    if not asked:
        return NOT_SEEN, f"no cell asked for {units}"
    if there := [record for record in asked if record.realised.get("observed") == wanted]:
        return CONFIRMED, f"{len(there)} of {len(asked)} cells"
    why = asked[0].realised.get("verdict_reasons") or ["no reason given"]
    return NOT_SEEN, f"none of {len(asked)} cells; {why[0]}"


def _check_mps(records: Sequence[Record]) -> Answer:
    asked = [record for record in records if record.cell.get("runtime") in TORCH_ON_GPU]
    if not asked:
        return NOT_SEEN, f"no cell asked for runtime={' or '.join(TORCH_ON_GPU)}"
    if asked[0].status == "refused":
        return NOT_SEEN, asked[0].reason or "refused"
    if bad := [record for record in asked if record.value("psnr_db") is None]:
        return CONTRADICTED, f"{bad[0].status}: {bad[0].reason}"
    psnr = min(value for record in asked if (value := worst_psnr(record)) is not None)
    return (CONFIRMED if psnr >= 60 else CONTRADICTED), f"PSNR {psnr:.1f} dB at least, in fp32"


CHECKS: dict[str, Judge] = {
    "Core ML compiles our programs": partial(_check_stage, "compile"),
    "MLComputePlan answers for them": partial(_check_stage, "place"),
    "it names a unit for their ops": _check_plans,
    "they load, cold and cached": partial(_check_stage, "load"),
    "a cached load is the faster one": partial(_check_order, "load_cached_ms", "load_cold_ms", 1.0),
    "they predict": partial(_check_stage, "latency"),
    "Core ML's own duration is within ours":
        partial(_check_order, "latency_native_median_ms", "latency_median_ms", NATIVE_SLACK),
    "their numbers are right": _check_accuracy,
    "the evidence pass ends": partial(_check_stage, "evidence"),
    "log stream can be read": partial(_check_source, "log"),
    "powermetrics can be read": partial(_check_source, "power"),
    "energy of a prediction is believable": partial(_check_range, "energy_cpu_mj", 0.0, 1e5, "mJ"),
    "proc_pid_rusage can be read": partial(_check_source, "footprint"),
    "footprint is believable": partial(_check_range, "footprint_peak_bytes", 3e7, 1e12, "bytes"),
    "thermal pressure can be read": partial(_check_source, "thermal_pressure"),
    "die temperature is believable": partial(_check_range, "die_celsius", 15.0, 115.0, "degC"),
    "the CPU is recognised": partial(_check_units, "cpu_only", "cpu"),
    "the GPU is recognised": partial(_check_units, "cpu_and_gpu", "gpu"),
    "the Neural Engine is recognised": partial(_check_units, "cpu_and_ne", "ane"),
}  # fmt: skip
