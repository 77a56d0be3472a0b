"""The conversion of task outcomes to records: one record per cell, even if tasks failed."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ane_sweep.bridge import disk, families, plugins
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.figures import Artifact, Metric
from ane_sweep.bridge.plan import Outcome, Plan
from ane_sweep.bridge.record import Record, StageOutcome, StageStatus, Status, Weights, worst_psnr
from ane_sweep.bridge.runtimes import RUNTIMES, traits
from ane_sweep.bridge.stages import STAGES
from ane_sweep.bridge.task import Realised, Task
from ane_sweep.placement.rows import plan_agreement
from ane_sweep.results import gather
from ane_sweep.results.gather import Chain
from ane_sweep.results.headline import answers_by_timing
from ane_sweep.results.pool import in_vain, pooled
from ane_sweep.results.verdict import Verdict

BAD = {
    StageStatus(word): Status(word) for word in ("failed", "crashed", "timeout", "out_of_memory", "blocked", "skipped")
}

# Of precisions without a gate of their own. In docs/precisions.md rank agreement is 0.79 and less under it, 0.94 and more above.
FLOOR_DB = 30.0
_OF_THE_PROGRAM = ("package_bytes", "bits_per_weight")
Files = Callable[[Path], list[Artifact]]


def make_records(
    plan: Plan,
    outcomes: Mapping[str, Outcome],
    *,
    sweep: str,
    host: dict[str, Any],
    toolchain: dict[str, str | None],
    files: Files,
) -> list[Record]:
    """Return one record per planned cell, in the order of the plan's cells.

    files   artifact's folder -> its files
    """
    sharing = Counter(key for chain in plan.chains.values() for key in chain)
    made = []
    for cell in plan.cells:
        source = plan.sources[cell.key]
        record = Record(
            sweep=sweep,
            cell_key=cell.key,
            cell=cell.as_dict(),
            status=Status.OK,
            realised=Realised(runtime=None, compute_units=None, chunks=None) | _stand_in(host),
            weights=Weights(source.kind, source.source, source.digest),
            host=host,
            toolchain=toolchain | _plugins(cell),
        )
        if reason := plan.refused.get(cell.key):
            record.status, record.reason = Status.REFUSED, reason
        else:
            _fill(record, plan, cell, outcomes, sharing, files)
        made.append(record)
    return made


def _fill(
    record: Record, plan: Plan, cell: Cell, outcomes: Mapping[str, Outcome], sharing: Mapping[str, int], files: Files
) -> None:
    """Add the outcomes of a cell's tasks, and its verdict, to its record."""
    chain = _block_uncut([(plan.tasks[key], outcomes[key]) for key in plan.chains[cell.key]])
    timings = [(task, outcome) for task, outcome in chain if STAGES[task.stage].pooled]
    _measured_on(record, plan, [*timings, *chain])
    for task, outcome in chain:
        took = outcome.result
        times = (took.seconds, took.peak_bytes, took.exit)
        record.stages.append(StageOutcome(task.stage, outcome.status, outcome.reason, *times, key=task.key))
        if outcome.done and not STAGES[task.stage].pooled:
            new = {metric.what for metric in took.metrics}  # the size of the compressed program, not of both
            record.metrics = [*(metric for metric in record.metrics if metric.what not in new), *took.metrics]
            _realise(record, task, took.realised)
            record.placement += took.placement
            if STAGES[task.stage].artifact and outcome.folder is not None:
                record.artifacts += files(outcome.folder)
        elif STAGES[task.stage].leaves == "program":  # what is there is another program, before its compression
            record.metrics = [metric for metric in record.metrics if metric.name not in _OF_THE_PROGRAM]
    metrics, realised, record.timings = pooled([outcome.result for _, outcome in timings if outcome.done])
    record.metrics += metrics + _agreement(chain, record.host)
    if timings:  # none with latency=off
        timing = timings[0][0]
        _realise(record, timing, realised)
        record.realised |= {"latency_task": timing.key, "cells_sharing_timing": sharing[timing.key]}
    judged = None
    if traits(record.realised["runtime"]).coreml:
        judged = gather.judged(cell, chain, {units: outcomes[key] for units, key in plan.beside[cell.key].items()})
        record.realised |= {"verdict": judged.verdict, "observed": judged.observed, "verdict_reasons": judged.reasons}
    record.realised |= _psnr_warning(cell, record)
    record.status, record.reason = _verdict(cell, record, chain, judged)


def _realise(record: Record, task: Task, realised: Realised) -> None:
    """Add what a task reports. One that ran a cut program uncut, as both are proven one, changes no number of chunks."""
    cut, record.realised = record.realised.get("chunks"), record.realised | realised
    if STAGES[task.stage].runs_program and cut and cut != record.realised.get("chunks"):
        record.realised |= {"chunks": cut, "scored": "uncut"}


def _block_uncut(chain: Chain) -> Chain:
    """Return a cell's tasks with those blocked that ran the program uncut, if its cut failed: then nothing proves that both are one."""
    for cut, ended in chain:
        if STAGES[cut.stage].leaves == "same program" and not STAGES[cut.stage].on_coreml and not ended.done:
            blocked = ended.block(cut.stage)
            return [(task, blocked if STAGES[task.stage].runs_program and one.done else one) for task, one in chain]
    return chain


def _stand_in(host: Mapping[str, str]) -> Realised:
    return {"stand_in": host["stand_in"]} if "stand_in" in host else {}


def _psnr_warning(cell: Cell, record: Record) -> Realised:
    """Return `psnr_warning` if the precision has no gate of its own and the outputs are below the floor; else nothing."""
    psnr = worst_psnr(record)
    if psnr is None or psnr >= FLOOR_DB or cell.precision_settings.min_psnr_db is not None:
        return {}
    return {"psnr_warning": f"{_psnr_name(record)} is under {FLOOR_DB:g} dB, and the precision has no gate of its own"}


def _psnr_name(record: Record) -> str:
    """Return the printed name of the `worst_psnr` metric."""
    return "PSNR" if record.value("psnr_worst_db") is None else "PSNR of the worst output"


def _measured_on(record: Record, plan: Plan, chain: Chain) -> None:
    """Set the record's host to the fleet machine that measured the cell (from the first task that names one), or to the planned one."""
    if (place := plan.places.get(record.cell_key)) is None:
        return
    facts = [outcome.result.facts for _, outcome in chain if outcome.done and "measured_on" in outcome.result.facts]
    measured = facts[0]["measured_on"] if facts else {"host": dict(place.host), "toolchain": {}}
    record.host, record.toolchain = measured["host"], record.toolchain | measured["toolchain"]
    record.realised.pop("stand_in", None)
    record.realised |= {"machine": record.host.get("worker")} | _stand_in(record.host)


def _plugins(cell: Cell) -> dict[str, str | None]:
    """Return the versions of the plug-in packages that a cell's family, runtime and precision come from."""
    precision = plugins.usable("precisions").get(cell.precision)
    return plugins.versions((families.plugin_of(cell.family), RUNTIMES.plugin_of(cell.runtime), precision))


def _agreement(chain: Chain, host: Mapping[str, str]) -> list[Metric]:
    """Return the share of ops that Core ML's plan and our prediction for the same chip place on the same unit, if both exist."""
    folders = {task.stage: outcome.folder for task, outcome in chain if outcome.done}
    place = folders.get("place")
    planned = next((disk.read_json(path) for path in place.glob("placement.planned.*.json")), None) if place else None
    if planned is None:
        return []
    chip = planned["chip"]
    source = f"stand-in {host['stand_in']}: MLComputePlan" if "stand_in" in host else "MLComputePlan"
    predicted = disk.read_json((folders.get("predict") or Path()) / f"placement.predicted.{chip}.json")
    share = plan_agreement(predicted["table"], planned["table"]) if predicted else None
    return [] if share is None else [Metric("plan_agreement", share, "1", kind="predicted", source=source, chip=chip)]


def _verdict(cell: Cell, record: Record, chain: Chain, judged: Verdict | None) -> tuple[Status, str | None]:
    """Return the cell's status and reason: those of its first failed stage; warnings make it degraded, not failed.
    Warnings about a timing count only if it is the headline latency.

    A failed evidence pass only causes a warning, as the timing was done before it. So does a verdict against the plan;
    a verdict that the cell ran on another unit than requested makes the cell a fallback.
    """
    timed = any(STAGES[task.stage].pooled and outcome.done for task, outcome in chain)
    spare = [task.key for task, _ in chain if timed or task.params.get("check")]  # may be skipped
    bad = [(t, o) for t, o in chain if o.status in BAD and not (t.key in spare and o.status == StageStatus.SKIPPED)]
    if fatal := [(task, outcome) for task, outcome in bad if STAGES[task.stage].fatal]:
        task, outcome = next((pair for pair in fatal if pair[1].status != StageStatus.BLOCKED), fatal[0])
        reason = outcome.reason or "no reason given"
        reason = reason if reason.startswith(task.stage) else f"{task.stage}: {reason}"
        printed = dict.fromkeys(str(finding["explanation"]) for finding in gather.printed([(task, outcome)]))
        return BAD[outcome.status], ". Core ML said: ".join([reason, *printed])
    if judged is not None and judged.fell:
        return Status.FALLBACK, "; ".join(judged.reasons)
    doubts = [doubt for _, outcome in chain for doubt in outcome.result.doubts]
    if len({outcome.result.facts["weights"] for _, outcome in chain if "weights" in outcome.result.facts}) > 1:
        doubts.append(
            "the module's own code makes other weights in each process, so what was converted is not what it is scored against: "
            "draw them with torch, numpy.random or random, which are seeded, or give weights=FILE.safetensors"
        )
    if judged is not None and judged.verdict == "disagrees":
        doubts.append("; ".join(judged.reasons))
    doubts += [f"the evidence pass ended as {o.status}: {o.reason}; the timings were taken before it" for _, o in bad]
    if answers_by_timing(record):
        doubts += filter(None, (record.realised.get("unstable"), in_vain(record.timings)))
    gate = cell.precision_settings.min_psnr_db
    psnr = worst_psnr(record)
    if gate is not None and psnr is not None and psnr < gate:
        doubts.append(f"{_psnr_name(record)} {psnr:.1f} dB is under the {gate:g} dB that {cell.precision} should reach")
    return (Status.DEGRADED, "; ".join(doubts)) if doubts else (Status.OK, None)
