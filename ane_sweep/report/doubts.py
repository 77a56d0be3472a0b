"""What deserves doubt in a sweep, each with the next thing to try. One sentence per kind of doubt, not per cell."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, varying_axes
from ane_sweep.bridge.runtimes import traits


def doubts(records: list[Record]) -> list[str]:
    """Sentences, the gravest first; empty when nothing gives reason for doubt."""
    return [*_not_ok(records), *_labels(records), *_timing(records), *_not_apple(records), *_unavailable(records)]


def not_ok_groups(records: list[Record]) -> list[list[Record]]:
    """Records that are not ok, together where status and reason are equal: group n is doubt number n + 1."""
    groups: dict[tuple[str, str | None], list[Record]] = defaultdict(list)
    for record in records:
        if record.status is not Status.OK:
            groups[(record.status.value, record.reason)].append(record)
    return list(groups.values())


def short_name(record: Record, axes: list[str]) -> str:
    """`model=minilm chunks=2`: enough of the request to find the row, and to type it again."""
    cell = flat_cell(record)
    return " ".join(f"{as_typed(axis)}={cell[axis]}" for axis in axes or ["model"] if axis in cell)


def _not_ok(records: list[Record]) -> Iterable[str]:
    axes = varying_axes(records)
    for cells in not_ok_groups(records):
        status, reason = cells[0].status.value, cells[0].reason or "no reason recorded"
        yield f"{status}, {_count(cells)} ({_examples(cells, axes)}): {reason.rstrip('.')}. {_next(status, cells[0])}"


def _next(status: str, record: Record) -> str:
    if status == "degraded":
        if record.realised.get("verdict") == "disagrees":
            return "Next: the record's `placement` beside its `verdict_reasons`; the timings stand."
        if "evidence pass" in (record.reason or ""):
            return f"Next: read runs/{record.sweep}/tasks/evidence-*/stderr.txt; evidence=off leaves the pass out."
        if "psnr" in (record.reason or "").lower():
            if any(stage.stage == "compress" for stage in record.stages):
                return "Next: the same cell with precision=fp16 says what the weights' recipe costs; then more bits."
            return "Next: the same cell with precision=fp32, to see whether fp16 costs the accuracy."
        return "Next: the same command with nothing else running; preparation comes from the cache."
    if status == "refused":
        return "Next: another value of the axis; `ane-sweep plan` shows every refusal before anything runs."
    if status == "fallback":
        return "Next: the placement in the record says which operations could not go there."
    if status in ("blocked", "skipped"):
        return "Next: the stage it depends on; it runs when the same command is given again."
    for stage in record.stages:
        if stage.status == status and stage.key:
            return f"Next: read runs/{record.sweep}/tasks/{stage.stage}-{stage.key[:12]}/stderr.txt"
    return "Next: `ane-sweep report --json` shows the stage."


def _labels(records: list[Record]) -> Iterable[str]:
    for script in dict.fromkeys(r.host["stand_in"] for r in records if r.host.get("stand_in")):
        yield (
            f"stand-in: no Mac took part; times, plans and failures of Core ML are what the script {script} says. "
            "Next: the same command without ANE_SWEEP_STAND_IN, on a Mac."
        )
    cells = [record for record in records if record.weights.kind == "random"]
    if cells:
        yield (
            f"weights=random, {_count(cells)}: PSNR says nothing about the trained model and latency may differ "
            "from it. Next: the same command without weights=random, or with weights=PATH."
        )
    for said in dict.fromkeys(str(record.realised["cut"]) for record in records if "cut" in record.realised):
        cells = [record for record in records if record.realised.get("cut") == said]
        yield f"chunks, {_count(cells)}: {said}. Next: another number of chunks, or chunk_by=time."
    cells = [record for record in records if record.realised.get("texts") == "synthetic"]
    if cells:
        yield (
            f"texts=synthetic, {_count(cells)}: seeded token ids in place of text. "
            "Next: weights that bring their tokenizer along."
        )


def _timing(records: list[Record]) -> Iterable[str]:
    """What the samples, and the look at the machine before each timing, give to think."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        said = [note for timing in record.timings for note in timing.notes]
        said += [
            f"while timing, {doubt}"
            for timing in record.timings
            for doubt in (timing.gate.doubts if timing.gate else [])
            if doubt not in (record.reason or "")  # it made the cell degraded, and stands above
        ]
        for note in dict.fromkeys(said):
            found[note].append(record)
    for note, cells in found.items():
        yield f"{note} ({_count(cells)})."


def _not_apple(records: list[Record]) -> Iterable[str]:
    runtimes = Counter(r.realised.get("runtime") for r in records if r.value("latency_median_ms") is not None)
    names = sorted(str(name) for name in runtimes if name is not None and traits(name).hardware == "CPU")
    if names:
        yield (
            f"latency of runtime={','.join(names)} is this host's CPU and says nothing about the Neural Engine. "
            "Next: the same command on a Mac, where runtime=auto means coreml."
        )
    for name in runtimes:
        if (hardware := traits(name).hardware) not in ("CPU", "Apple"):
            yield f"latency of runtime={name} is that of this host's {hardware} and says nothing about Apple hardware."


def _unavailable(records: list[Record]) -> Iterable[str]:
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        for stage in record.stages:
            if stage.status == "unavailable" and stage.stage not in found[stage.reason or "unavailable here"]:
                found[stage.reason or "unavailable here"].append(stage.stage)
    for reason, stages in found.items():
        yield f"not done on this host: {', '.join(stages)} ({reason})."


def _count(cells: list[Record]) -> str:
    return f"{len(cells)} cell{'s' if len(cells) != 1 else ''}"


def _examples(cells: list[Record], axes: list[str]) -> str:
    more = f", and {len(cells) - 2} more" if len(cells) > 2 else ""
    return "; ".join(short_name(cell, axes) for cell in cells[:2]) + more
