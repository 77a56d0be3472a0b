"""The warnings about a sweep, each with advice. One sentence per kind of warning, not per cell."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, varying_axes
from ane_sweep.bridge.runtimes import traits
from ane_sweep.bridge.task import DRAWN
from ane_sweep.results import advice, search_log
from ane_sweep.results.headline import is_check, is_only_scored, is_timed, measured_ms
from ane_sweep.results.ranking import not_ok_groups
from ane_sweep.terminal import count

RUNS = advice.RUNS


@dataclass(frozen=True)
class Doubt:
    """One warning as a sentence, and the positions of the cells that it concerns.

    meaning         it says what the cells' figures mean
    doubts_figures  it casts doubt on their figures
    """

    text: str
    cells: tuple[int, ...]
    meaning: bool = False
    doubts_figures: bool = True


def doubts(records: Sequence[Record], runs: str = RUNS) -> list[str]:
    """Return the warnings as sentences, the gravest first; empty if there are none. `runs`: the folder of the runs."""
    return [doubt.text for doubt in with_cells(records, runs)]


def with_cells(records: Sequence[Record], runs: str = RUNS) -> list[Doubt]:
    """Return the warnings with the cells that each concerns."""
    place = {id(record): n for n, record in enumerate(records)}
    kinds = [(_not_ok(records, runs), False, True), (_labels(records), True, True)]
    kinds += [(_under_floor(records), False, True), (_timing(records), False, True)]
    kinds += [
        (_not_apple(records), True, True),
        (_checks(records), False, False),
        (_unavailable(records), False, False),
    ]
    return [
        Doubt(text, tuple(place[id(record)] for record in cells), meaning, against)
        for warnings, meaning, against in kinds
        for text, cells in warnings
    ]


def about_all(doubts: Iterable[Doubt], records: Sequence[Record]) -> list[Doubt]:
    """Return the warnings that concern every cell that ran."""
    ran = {n for n, record in enumerate(records) if record.status in (Status.OK, Status.DEGRADED, Status.FALLBACK)}
    return [doubt for doubt in doubts if ran and ran <= set(doubt.cells)]


Warnings = Iterable[tuple[str, list[Record]]]


def _grouped(records: Sequence[Record], key: Callable[[Record], object]) -> dict[str, list[Record]]:
    """Return the records grouped by their text for a key; records without one are left out."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if text := key(record):
            groups[str(text)].append(record)
    return groups


def short_name(record: Record, axes: list[str]) -> str:
    """Return enough of the request to find the row and to type it again: `model=minilm chunks=2`."""
    cell = flat_cell(record)
    return " ".join(f"{as_typed(axis)}={cell[axis]}" for axis in axes or ["model"] if axis in cell)


def _not_ok(records: Sequence[Record], runs: str) -> Warnings:
    axes = varying_axes(list(records))
    for cells in not_ok_groups(records):
        status, reason = cells[0].status.value, cells[0].reason or "no reason recorded"
        reason = reason if len({cell.reason for cell in cells}) == 1 else search_log.kind_of_reason(reason)
        next_step = advice.advise(status, cells[0], f"{runs}/{cells[0].sweep}")
        yield f"{status}, {_count(cells)} ({_examples(cells, axes)}): {reason.rstrip('.')}. {next_step}", cells


def _labels(records: Sequence[Record]) -> Warnings:
    for script, cells in _grouped(records, lambda record: record.host.get("stand_in")).items():
        yield (
            f"stand-in: no Mac took part; times, plans and failures of Core ML are what the script {script} says. "
            "Next: the same command without ANE_SWEEP_STAND_IN, on a Mac.",
            cells,
        )
    if cells := [record for record in records if record.weights.kind == "random"]:
        yield (
            f"weights=random, {_count(cells)}: PSNR says nothing about the trained model and latency may differ "
            "from it. Next: the same command without weights=random, or with weights=PATH.",
            cells,
        )
    for drawn, cells in _grouped(records, lambda record: record.realised.get(DRAWN)).items():
        yield (
            f"random weights, {_count(cells)}: {drawn}: PSNR says nothing about a trained model and latency may differ from it. "
            "Next: weights=FILE.safetensors, or code that loads trained ones.",
            cells,
        )
    for cut, cells in _grouped(records, lambda record: record.realised.get("cut")).items():
        yield f"chunks, {_count(cells)}: {cut}. Next: another number of chunks, or chunk_by=time.", cells
    if cells := [record for record in records if record.realised.get("texts") == "synthetic"]:
        yield (
            f"texts=synthetic, {_count(cells)}: seeded token ids in place of text. "
            "Next: weights that bring their tokenizer along.",
            cells,
        )
    if inputs := _grouped(records, lambda record: record.realised.get("inputs")):
        cells = [record for record in records if "inputs" in record.realised]
        yield (
            f"inputs are made up, {_count(cells)} ({'; '.join(inputs)}): scores tell how exact a program is, "
            "not how good at its work.",
            cells,
        )


def _under_floor(records: Sequence[Record]) -> Warnings:
    """Yield the warnings about low PSNR with precisions that have no gate of their own."""
    axes = varying_axes(list(records))
    for warning, cells in _grouped(records, lambda record: record.realised.get("psnr_warning")).items():
        next_step = "Next: a task's score (`ane-sweep help precisions`), or more bits."
        yield f"{warning}: {_count(cells)} ({_examples(cells, axes)}). {next_step}", cells


def _timing(records: Sequence[Record]) -> Warnings:
    """Yield the notes on samples, and the warnings about the machine before each timing."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in (record for record in records if not is_check(record)):
        notes = [note for timing in record.timings for note in timing.notes]
        gates = [doubt for timing in record.timings if timing.gate for doubt in timing.gate.doubts]
        # what made the cell degraded stands above
        notes += [f"while timing, {doubt}" for doubt in gates if doubt not in (record.reason or "")]
        for note in dict.fromkeys(notes):
            found[note].append(record)
    return ((f"{note} ({_count(cells)}).", cells) for note, cells in found.items())


def _not_apple(records: Sequence[Record]) -> Warnings:
    asked = [record for record in records if is_timed(record) and not is_check(record)]
    timed = _grouped(asked, lambda record: str(record.realised.get("runtime")))
    names = sorted(name for name in timed if name != "None" and traits(name).hardware == "CPU")
    if names:
        yield (
            f"latency of runtime={','.join(names)} is this host's CPU and says nothing about the Neural Engine. "
            "Next: the same command on a Mac, where runtime=auto means coreml.",
            [record for name in names for record in timed[name]],
        )
    for name, cells in timed.items():
        if (hardware := traits(name).hardware) not in ("CPU", "Apple"):
            text = f"latency of runtime={name} is that of this host's {hardware} and says nothing about Apple hardware."
            yield text, cells


def _checks(records: Sequence[Record]) -> Warnings:
    """Yield one line about the times of cells that were only run to check that they run."""
    cells = [record for record in records if is_check(record)]
    if cells:
        known = sorted(measured_ms(record) or 0.0 for record in cells)
        unit, scale, digits = ("s", 1000, 2) if known[-1] >= 1000 else ("ms", 1, 3)
        times = list(dict.fromkeys(f"{float(f'{ms / scale:.{digits}g}'):g}" for ms in (known[0], known[-1])))
        where = " and ".join(dict.fromkeys(traits(str(record.realised.get("runtime"))).hardware for record in cells))
        whole = " of the uncut program" if _uncut(cells) else ""
        took = f"runs here in {' to '.join(times)} {unit} on this {where}"
        yield f"{took}: a check{whole}, no measurement of the Neural Engine.", cells
    if cells := [record for record in records if is_only_scored(record)]:
        program = "the uncut program" if _uncut(cells) else "the program"
        why = f"a call should take seconds here, and the score has shown that {program} runs"
        yield f"{_count(cells)} not timed: {why} (latency.repeats=4 measures).", cells


def _uncut(records: Sequence[Record]) -> bool:
    return any("scored" in record.realised for record in records)


def _unavailable(records: Sequence[Record]) -> Warnings:
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
