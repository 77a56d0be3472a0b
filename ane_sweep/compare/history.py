"""`ane-sweep history [N]`: the headline latency of each cell over the last N runs, its steps, and a test of the last run.

Timings are tested. Estimates have no noise: each change from ESTIMATE_SHARE on is a step.
"""

import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep import outward, terminal
from ane_sweep.bridge import record
from ane_sweep.bridge.record import Record
from ane_sweep.compare import match
from ane_sweep.compare.judge import ESTIMATE_SHARE
from ane_sweep.compare.steps import DRAWS, FEWEST, FEWEST_BEFORE, Step, stands_out, steps
from ane_sweep.errors import RunNotFound
from ane_sweep.results.difference import LEAST_PERCENT, LEVEL, figures_by_round
from ane_sweep.results.headline import answers_by_timing, headline, name_chip
from ane_sweep.stats.student import trimmed_mean
from ane_sweep.store import runs

RUNS = 60
SAME = "the estimate is the same in every run"
STEADY = "no step, and the last run does not stand out"
SHORT = f"the last run does not stand out; with fewer than {FEWEST} runs, steps could not be tested"


@dataclass
class Series:
    """The headline latencies of one cell over several runs, oldest first: the estimate for `chip` in ms, or of a timing
    (chip: None) the typical process median.
    """

    label: str
    chip: str | None = None
    stamps: list[str] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    found: list[Step] = field(default_factory=list)
    last_p: float | None = None

    @property
    def tested(self) -> bool:
        """Return True if there are enough runs to judge the last one: two estimates, or more timings; a search for steps
        in timings needs more.
        """
        return len(self.levels) > (1 if self.chip else FEWEST_BEFORE)

    @property
    def steady(self) -> list[float]:
        """Return the latencies of the runs since the last step, without the last run."""
        return self.levels[self.found[-1].index if self.found else 0 : -1]

    @property
    def last_percent(self) -> float:
        return 100 * (self.levels[-1] / level([*self.steady]) - 1) if self.steady else 0.0


def level(values: list[float]) -> float:
    """Return the typical value of several figures: the trimmed mean of their logs."""
    return math.exp(trimmed_mean([math.log(value) for value in values]).mean) if len(values) > 1 else values[0]


def typical(record: Record, name: str = "median_ms") -> float | None:
    """Return the typical value of one figure over the processes of a record, or None if none measured it."""
    values = list(figures_by_round(record.timings, name).values())
    return level(values) if values else None


def series(groups: list[list[Record]], stamps: list[str]) -> tuple[list[Series], list[str]]:
    """Return one series per cell, and notes. Timings of other hosts than the last run's are left out; a note counts their
    runs.
    """
    notes: list[str] = []
    there = groups[-1][0].host
    kept = [
        (stamp, group)
        for stamp, group in zip(stamps, groups)
        if group
        and (
            not any(map(answers_by_timing, group))
            or all(group[0].host.get(name) == there.get(name) for name in match.HOST)
        )
    ]
    if len(kept) < len(groups):
        notes.append(f"{len(groups) - len(kept)} of {len(groups)} runs are of another host than the last one: left out")
    requests, labels = match.requests([group for _, group in kept])
    found: dict[tuple[str, str | None], Series] = {}
    for (stamp, _), cells in zip(kept, requests):
        for request, (one, *_) in cells.items():
            latency = headline(one)
            reached = typical(one) if answers_by_timing(one) else latency and latency.ms
            if latency and reached:
                cell = found.setdefault((request, latency.chip), Series(labels[request], latency.chip))
                cell.stamps.append(stamp)
                cell.levels.append(reached)
                cell.records.append(one)
    return list(found.values()), notes


def examine(cells: list[Series], alpha: float = LEVEL) -> list[str]:
    """Find steps and unusual last nights in all cells, at `alpha` for all of them together (Bonferroni), and return notes."""
    notes = []
    timed = [cell for cell in cells if not cell.chip]
    share = alpha / max(1, len(timed))
    if share < 1 / DRAWS:
        notes.append(
            f"steps are tested at {100 / DRAWS:g} % a cell: for {len(timed)} cells that is more than {alpha:.0%} together"
        )
    for cell in cells:
        if cell.chip:
            changes = enumerate(itertools.pairwise(cell.levels), 1)
            cell.found = [Step(n, a, b, 0.0) for n, (a, b) in changes if abs(b / a - 1) >= ESTIMATE_SHARE]
    for cell in timed:
        cell.found = [s for s in steps(cell.levels, max(share, 1.5 / DRAWS)) if abs(s.percent) >= LEAST_PERCENT]
        p = stands_out(cell.steady, cell.levels[-1])
        cell.last_p = p if p is not None and p < share and abs(cell.last_percent) >= LEAST_PERCENT else None
    return notes


def changed_with(cell: Series, step: Step) -> list[str]:
    """Return the other differences between the two runs around a step."""
    return match.marks(cell.records[step.index - 1], cell.records[step.index])


def slower(cell: Series) -> bool:
    """Return True if the last step or the last night of a cell is slower than before."""
    return bool(cell.found and cell.found[-1].percent > 0) or (cell.last_p is not None and cell.last_percent > 0)


def read(out: Path, count: int) -> tuple[list[Series], list[str]]:
    """Return the series and notes of the newest `count` finished runs that have latencies. Raises RunNotFound."""
    finished = (run for run in runs.list_runs(out) if run.finished)
    read_ones = ((run.stamp, record.kept_records(run.folder) or []) for run in finished)
    newest = itertools.islice((one for one in read_ones if any(map(headline, one[1]))), count)
    known = [*newest][::-1]
    if not known:
        raise RunNotFound(f"no finished run with a latency under {out / 'runs'}")
    return series([records for _, records in known], [stamp for stamp, _ in known])


def as_text(cells: list[Series], notes: list[str]) -> str:
    """Return the text: one line for each cell with a finding, then the number of cells without one."""
    lines = []
    for cell in cells:
        for step in cell.found:
            what, sure = (f"estimate for {name_chip(cell.chip)}: ", "") if cell.chip else ("", f"p = {step.p:.2g}, ")
            lines.append(
                f"{cell.label}: {what}{step.before:.4g} -> {step.after:.4g} ms ({step.percent:+.1f} %) from "
                f"{cell.stamps[step.index]} on, {sure}{len(cell.levels)} runs"
            )
            lines += [f"  changed then: {mark}" for mark in changed_with(cell, step)]
        if cell.last_p is not None:
            lines.append(
                f"{cell.label}: the last run ({cell.stamps[-1]}) stands out, {cell.levels[-1]:.4g} ms ({cell.last_percent:+.1f} %), "
                f"p = {cell.last_p:.2g} against {terminal.count(len(cell.steady), 'run')} before"
            )
    few = [cell for cell in cells if not cell.tested]
    calm = [cell for cell in cells if cell.tested and not cell.found and cell.last_p is None]
    same = sum(bool(cell.chip) for cell in calm)
    long = sum(not cell.chip and len(cell.levels) >= FEWEST for cell in calm)
    for count, said in ((same, SAME), (long, STEADY), (len(calm) - same - long, SHORT)):
        lines += [f"{count} of {len(cells)} cells: {said}"] if count else []
    if few:
        most = max(len(cell.levels) for cell in few)
        lines.append(
            f"{len(few)} of {len(cells)} cells could not be tested: {terminal.count(most, 'run')} at most, "
            + (
                f"where the last one is held against {FEWEST_BEFORE} before it, and a step needs {FEWEST}"
                if any(not cell.chip for cell in few)
                else "and an estimate is held against the one before it"
            )
        )
    return outward.escape_controls("\n".join([*lines, *(f"note: {note}" for note in notes)]) + "\n")


def as_json(cells: list[Series], notes: list[str]) -> str:
    listed = [
        {
            "cell": cell.label, "kind": "estimated" if cell.chip else "measured", "chip": cell.chip,
            "tested": cell.tested, "runs": cell.stamps, "latency_ms": cell.levels,
            "steps": [
                {**vars(s), "run": cell.stamps[s.index], "percent": s.percent, "changed": changed_with(cell, s)} for s in cell.found
            ],
            "last_stands_out": None if cell.last_p is None else {"p": cell.last_p, "percent": cell.last_percent},
        }
        for cell in cells
    ]  # fmt: skip
    return json.dumps({"schema": 1, "notes": notes, "cells": listed}, indent=1, allow_nan=False) + "\n"
