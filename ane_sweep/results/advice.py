"""The next thing to try for a cell that is not ok."""

from ane_sweep.bridge.record import Record
from ane_sweep.results import search_log

RUNS = "outputs/runs"  # the folder of the runs, as a user would type it


def advise(status: str, record: Record, folder: str) -> str:
    """Return the next thing to try for a cell that is not ok. `folder` is that of its run, as a user would type it."""
    cause = record.reason or ""
    if status == "degraded":
        if record.realised.get("verdict") == "disagrees":
            return "Next: the record's `placement` beside its `verdict_reasons`; the timings stand."
        if "evidence pass" in cause:
            return f"Next: read {folder}/tasks/evidence-*/stderr.txt; evidence=off leaves the pass out."
        if "compresses none of" in cause:
            return "Next: +precision.weights.min_elements=1, or precision=fp16 for a net as small as this."
        if cause.startswith("coreai-opt compresses"):
            return "Next: compressor=ane_sweep, which compresses a program; +precision.weights.min_elements=1 takes small weights, too."
        if "psnr" in cause.lower():
            if any(stage.stage == "compress" for stage in record.stages):
                return "Next: the same cell with precision=fp16 says what the weights' recipe costs; then more bits."
            options = record.cell.get("precision_options") or {}
            if "fp32" in (options.get("compute"), record.cell.get("precision")):
                return "Next: the same cell with variant=original, to see whether the model's form costs the accuracy."
            return "Next: the same cell with precision=fp32, to see whether fp16 costs the accuracy."
        return "Next: the same command with nothing else running; preparation comes from the cache."
    if status == "refused":
        return "Next: another value of the axis; `ane-sweep plan` shows every refusal before anything runs."
    if status == "fallback":
        return "Next: the placement in the record says which operations could not go there."
    if cause.startswith(search_log.LEFT_OUT):
        return "Next: a wider limit, or the same words as a sweep, times it."
    if status in ("blocked", "skipped"):
        return "Next: the stage it depends on; it runs when the same command is given again."
    for stage in record.stages:
        if stage.status == status and stage.key:
            return f"Next: read {folder}/tasks/{stage.stage}-{stage.key[:12]}/stderr.txt"
    return "Next: `ane-sweep report --json` shows the stage."
