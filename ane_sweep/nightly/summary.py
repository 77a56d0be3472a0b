"""The summary of a night in a few lines of Markdown, for a chat or a mail."""

from collections import Counter
from collections.abc import Sized
from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep.bridge import disk
from ane_sweep.bridge.record import Record, Status
from ane_sweep.compare import show, sides
from ane_sweep.compare.judge import Comparison
from ane_sweep.outward import markdown
from ane_sweep.store.runs import Run
from ane_sweep.terminal import count, duration

SHOWN = 5  # changes of one bucket, and cells in a list


@dataclass
class Night:
    """The results of a night.

    left, missed   labels of all cells that the budget did not reach, and of those among them that were bad last time
    untested       keys of cells that have a baseline but could not be tested against it
    compared       comparison with the good nights; None without one, or if it failed, for the reason in `doubt`
    gone           old runs that were deleted
    """

    run: Run
    records: list[Record]
    left: list[str]
    budget_minutes: float | None
    compared: Comparison | None = None
    doubt: str | None = None
    missed: list[str] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    @property
    def regressed(self) -> bool:
        return self.compared is not None and self.compared.regressed

    @property
    def failing(self) -> list[Record]:
        """Return the records of cells that ran and failed; refused cells and cells left for another night do not count."""
        return [r for r in self.records if r.status not in (*sides.FINE, Status.REFUSED, Status.SKIPPED)]


def text(night: Night) -> str:
    """Return the summary; its first line is the verdict, short enough for a mail's subject."""
    records, compared, stamp = night.records, night.compared, night.run.stamp
    told = ", ".join(f"{n} {status}" for status, n in Counter(record.status.value for record in records).items())
    budget = "" if night.budget_minutes is None else f" of {duration(60 * night.budget_minutes)}"
    took = "an unknown time" if night.run.seconds is None else duration(night.run.seconds)
    lines = [f"# ane-sweep {stamp}: {headline(night)}", "", f"{_cells(records)} in {took}{budget}: {told}."]
    if night.left:
        lines += [f"{len(night.left)} cells are left for the next night: {_few(night.left)}."]
    if night.missed:
        lines += [f"{_cells(night.missed)} bad before and not measured tonight: {_few(night.missed)}."]
    if compared:
        if compared.only_b:
            lines += [f"{_cells(compared.only_b)} without a good night to be compared with: {_few(compared.only_b)}."]
        if night.untested:
            level = "the last good night stays the level that they are held against"
            lines += [f"{_cells(night.untested)} not tested: {level}."]
        lines += show.still_possible(compared)
        lines += [f"- differs from the good nights: {markdown(mark)}" for mark in compared.marks]
        lines += _changes(compared)
    if reasons := Counter(f"{record.status.value}: {record.reason}" for record in night.failing):
        lines += [
            "",
            "**not working** (tonight is no level for them; nights end with exit code 1 until they work again)",
        ]
        lines += [f"- {count(n, 'cell')} {markdown(reason)}" for reason, n in reasons.most_common(SHOWN)]
    lines += ["", f"Whole: `ane-sweep report {stamp}`; changes: `ane-sweep compare good {stamp}`."]
    if night.regressed or night.untested:
        lines += [f"If that is how it should be from now on: `ane-sweep nightly accept {stamp}`."]
    if night.gone:
        lines += [f"{len(night.gone)} old runs were deleted."]
    return "\n".join(lines) + "\n"


def headline(night: Night) -> str:
    """Return the verdict as one line: failures first, then the result of the comparison."""
    failing = f"{len(night.failing)} of {_cells(night.records)} not working; " if night.failing else ""
    if night.doubt:
        return f"{failing}not compared with the good nights: {night.doubt}"
    return failing + (show.verdict(night.compared) if night.compared else "no good night to compare with yet")


def write(out: Path, stamp: str, said: str) -> Path:
    """Write outputs/nightly/STAMP.md and a copy latest.md; return the path of the copy."""
    folder = out / "nightly"
    for name in (f"{stamp}.md", "latest.md"):
        with disk.replace_file(folder / name) as aside:
            aside.write_text(said, encoding="utf-8")
    return folder / "latest.md"


def _changes(compared: Comparison) -> list[str]:
    lines = []
    for name in compared.buckets:
        changes, untested = compared.bucket(name), name == "timing untested"
        if changes:
            why = " (too few processes prove nothing; latency.repeats=8)" if untested else ""
            lines += ["", f"**{name}: {len(changes)}**{why}"]
        if changes and not untested:
            lines += [f"- {markdown(f'{change.cell}: {change.text}')}" for change in changes[:SHOWN]]
            lines += [f"- ... {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    return lines


def _cells(things: Sized) -> str:
    return count(len(things), "cell")


def _few(names: list[str]) -> str:
    return markdown(", ".join(names[:SHOWN])) + (", ..." if len(names) > SHOWN else "")
