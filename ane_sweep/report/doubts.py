"""The warnings about a sweep, each with the next thing to try. One sentence per kind of warning, not per cell."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, varying_axes
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.task import DRAWN
from ane_sweep.results import search_log
from ane_sweep.terminal import count

RUNS = "outputs/runs"


@dataclass(frozen=True)
class Doubt:
    """One sentence, and the positions of the cells that it is about.

    meaning         it says what their figures mean at all
    doubts_figures  it says something against them
    """

    text: str
    cells: tuple[int, ...]
    meaning: bool = False
    doubts_figures: bool = True


def doubts(records: Sequence[Record], runs: str = RUNS) -> list[str]:
    """Return the warnings as sentences, the gravest first; empty if there are none. `runs`: the folder of the runs."""
    return [doubt.text for doubt in with_cells(records, runs)]


def with_cells(records: Sequence[Record], runs: str = RUNS) -> list[Doubt]:
    """Return the warnings with the cells that each is about."""
    place = {id(record): n for n, record in enumerate(records)}
    kinds = [(_not_ok(records, runs), False, True), (_labels(records), True, True)]
    kinds += [(_under_floor(records), False, True), (_timing(records), False, True)]
    kinds += [(_not_apple(records), True, True), (_unavailable(records), False, False)]
    return [
        Doubt(text, tuple(place[id(record)] for record in cells), meaning, against)
        for said, meaning, against in kinds
        for text, cells in said
    ]


Said = Iterable[tuple[str, list[Record]]]


def not_ok_groups(records: Sequence[Record]) -> list[list[Record]]:
    """Records that are not ok, together where status and reason are equal (of a search, the kind of reason): group n is
    doubt number n + 1."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.status is not Status.OK:
            groups[(record.status.value, search_log.kind_of_reason(record.reason or ""))].append(record)
    return list(groups.values())


def short_name(record: Record, axes: list[str]) -> str:
    """Return enough of the request to find the row and to type it again: `model=minilm chunks=2`."""
    cell = flat_cell(record)
    return " ".join(f"{as_typed(axis)}={cell[axis]}" for axis in axes or ["model"] if axis in cell)


def _not_ok(records: Sequence[Record], runs: str) -> Said:
    axes = varying_axes(list(records))
    for cells in not_ok_groups(records):
        status, reason = cells[0].status.value, cells[0].reason or "no reason recorded"
        reason = reason if len({cell.reason for cell in cells}) == 1 else search_log.kind_of_reason(reason)
        next_step = _next(status, cells[0], f"{runs}/{cells[0].sweep}")
        yield f"{status}, {_count(cells)} ({_examples(cells, axes)}): {reason.rstrip('.')}. {next_step}", cells


def _next(status: str, record: Record, folder: str) -> str:
    if status == "degraded":
        if record.realised.get("verdict") == "disagrees":
            return "Next: the record's `placement` beside its `verdict_reasons`; the timings stand."
        if "evidence pass" in (record.reason or ""):
            return f"Next: read {folder}/tasks/evidence-*/stderr.txt; evidence=off leaves the pass out."
        if "compresses none of" in (record.reason or ""):
            return "Next: precision.weights.min_elements=1, or precision=fp16 for a net as small as this."
        if "psnr" in (record.reason or "").lower():
            if any(stage.stage == "compress" for stage in record.stages):
                return "Next: the same cell with precision=fp16 says what the weights' recipe costs; then more bits."
            if _computes_in_fp32(record):
                return "Next: the same cell with variant=original, to see whether the model's form costs the accuracy."
            return "Next: the same cell with precision=fp32, to see whether fp16 costs the accuracy."
        return "Next: the same command with nothing else running; preparation comes from the cache."
    if status == "refused":
        return "Next: another value of the axis; `ane-sweep plan` shows every refusal before anything runs."
    if status == "fallback":
        return "Next: the placement in the record says which operations could not go there."
    if (record.reason or "").startswith(search_log.LEFT_OUT):
        return "Next: a wider limit, or the same words as a sweep, times it."
    if status in ("blocked", "skipped"):
        return "Next: the stage it depends on; it runs when the same command is given again."
    for stage in record.stages:
        if stage.status == status and stage.key:
            return f"Next: read {folder}/tasks/{stage.stage}-{stage.key[:12]}/stderr.txt"
    return "Next: `ane-sweep report --json` shows the stage."


def _computes_in_fp32(record: Record) -> bool:
    options = record.cell.get("precision_options") or {}
    return "fp32" in (options.get("compute"), record.cell.get("precision"))


def _labels(records: Sequence[Record]) -> Said:
    for script in dict.fromkeys(r.host["stand_in"] for r in records if r.host.get("stand_in")):
        yield (
            f"stand-in: no Mac took part; times, plans and failures of Core ML are what the script {script} says. "
            "Next: the same command without ANE_SWEEP_STAND_IN, on a Mac.",
            [record for record in records if record.host.get("stand_in") == script],
        )
    cells = [record for record in records if record.weights.kind == "random"]
    if cells:
        yield (
            f"weights=random, {_count(cells)}: PSNR says nothing about the trained model and latency may differ "
            "from it. Next: the same command without weights=random, or with weights=PATH.",
            cells,
        )
    for said in dict.fromkeys(str(record.realised[DRAWN]) for record in records if DRAWN in record.realised):
        cells = [record for record in records if record.realised.get(DRAWN) == said]
        yield (
            f"random weights, {_count(cells)}: {said}: PSNR says nothing about a trained model and latency may differ from it. "
            "Next: weights=FILE.safetensors, or code that loads trained ones.",
            cells,
        )
    for said in dict.fromkeys(str(record.realised["cut"]) for record in records if "cut" in record.realised):
        cells = [record for record in records if record.realised.get("cut") == said]
        yield f"chunks, {_count(cells)}: {said}. Next: another number of chunks, or chunk_by=time.", cells
    cells = [record for record in records if record.realised.get("texts") == "synthetic"]
    if cells:
        yield (
            f"texts=synthetic, {_count(cells)}: seeded token ids in place of text. "
            "Next: weights that bring their tokenizer along.",
            cells,
        )
    cells = [record for record in records if "inputs" in record.realised]
    if cells:
        made = dict.fromkeys(str(record.realised["inputs"]) for record in cells)
        yield (
            f"inputs are made up, {_count(cells)} ({'; '.join(made)}): scores tell how exact a program is, "
            "not how good at its work.",
            cells,
        )


def _under_floor(records: Sequence[Record]) -> Said:
    """Yield the warnings about precisions that have no gate of their own."""
    axes = varying_axes(list(records))
    for warning in dict.fromkeys(
        str(record.realised["psnr_warning"]) for record in records if "psnr_warning" in record.realised
    ):
        cells = [record for record in records if record.realised.get("psnr_warning") == warning]
        yield (
            f"{warning}: {_count(cells)} ({_examples(cells, axes)}). Next: a task's score (`ane-sweep help precisions`), or more bits.",
            cells,
        )


def _timing(records: Sequence[Record]) -> Said:
    """Yield the notes on samples, and the warnings about the machine before each timing."""
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
        yield f"{note} ({_count(cells)}).", cells


def _not_apple(records: Sequence[Record]) -> Said:
    timed: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.value("latency_median_ms") is not None:
            timed[str(record.realised.get("runtime"))].append(record)
    names = sorted(name for name in timed if name != "None" and traits(name).hardware == "CPU")
    if names:
        yield (
            f"latency of runtime={','.join(names)} is this host's CPU and says nothing about the Neural Engine. "
            "Next: the same command on a Mac, where runtime=auto means coreml.",
            [record for name in names for record in timed[name]],
        )
    for name, cells in timed.items():
        if (hardware := traits(name).hardware) not in ("CPU", "Apple"):
            said = f"latency of runtime={name} is that of this host's {hardware} and says nothing about Apple hardware."
            yield said, cells


def _unavailable(records: Sequence[Record]) -> Said:
    found: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        for stage in record.stages:
            if stage.status == "unavailable":
                found[stage.reason or "unavailable here"][stage.stage].append(record)
    for reason, stages in found.items():
        cells = {id(record): record for several in stages.values() for record in several}
        yield f"not done on this host: {', '.join(stages)} ({reason}).", list(cells.values())


def _count(cells: list[Record]) -> str:
    return count(len(cells), "cell")


def _examples(cells: list[Record], axes: list[str]) -> str:
    more = f", and {len(cells) - 2} more" if len(cells) > 2 else ""
    return "; ".join(short_name(cell, axes) for cell in cells[:2]) + more
