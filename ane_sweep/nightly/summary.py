"""The night in some lines of Markdown, for a chat or a mail: what a person wants to know before the first coffee."""

from collections import Counter
from datetime import datetime
from pathlib import Path

from ane_sweep.compare import show
from ane_sweep.compare.judge import BUCKETS, Comparison
from ane_sweep.display import duration
from ane_sweep.outward import markdown
from ane_sweep.record import Record
from ane_sweep.runs import Run

SHOWN = 5  # changes of one bucket, and cells in a list


def text(
    run: Run,
    records: list[Record],
    compared: Comparison | None,
    left: list[str],
    budget_minutes: float | None,
    gone: list[str],
) -> str:
    """First line: the verdict, fit for a subject."""
    verdict = show.verdict(compared) if compared else "no good night to compare with yet"
    counts = Counter(record.status.value for record in records)
    told = ", ".join(f"{n} {status}" for status, n in counts.items())
    budget = "" if budget_minutes is None else f" of {duration(60 * budget_minutes)}"
    lines = [f"# ane-sweep {run.stamp}: {verdict}", "", f"{len(records)} cells in {_took(run)}{budget}: {told}."]
    if left:
        lines += [f"{len(left)} cells are left for the next night: {_few(left)}."]
    if compared:
        lines += [f"- differs from the good nights: {markdown(mark)}" for mark in compared.marks]
        lines += _changes(compared)
    lines += _broken(records)
    lines += ["", f"Whole: `ane-sweep report {run.stamp}`; changes: `ane-sweep compare good {run.stamp}`."]
    if compared and compared.regressed:
        lines += [f"If that is how it should be from now on: `ane-sweep nightly accept {run.stamp}`."]
    if gone:
        lines += [f"{len(gone)} old runs were deleted."]
    return "\n".join(lines) + "\n"


def write(out: Path, stamp: str, said: str) -> Path:
    """outputs/nightly/STAMP.md, and the same as latest.md; returns the latter."""
    folder = out / "nightly"
    for name in (f"{stamp}.md", "latest.md"):
        (folder / name).write_text(said, encoding="utf-8")
    return folder / "latest.md"


def _changes(compared: Comparison) -> list[str]:
    lines = []
    for name in BUCKETS:
        changes = compared.bucket(name)
        if name == "timing untested" and changes:
            lines += ["", f"**{name}: {len(changes)}** (one process a cell proves nothing; latency.repeats=8)"]
        elif changes:
            lines += ["", f"**{name}: {len(changes)}**"]
            lines += [f"- {markdown(f'{change.cell}: {change.text}')}" for change in changes[:SHOWN]]
            lines += [f"- ... {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    return lines


def _broken(records: list[Record]) -> list[str]:
    reasons = Counter(f"{r.status.value}: {r.reason}" for r in records if r.status not in ("ok", "degraded", "skipped"))
    lines = [f"- {n} cell{'' if n == 1 else 's'} {markdown(reason)}" for reason, n in reasons.most_common(SHOWN)]
    return ["", "**not working**", *lines] if lines else []


def _took(run: Run) -> str:
    began, ended = (datetime.fromisoformat(run.info[name]) for name in ("started", "finished"))
    return duration((ended - began).total_seconds())


def _few(names: list[str]) -> str:
    return markdown(", ".join(names[:SHOWN])) + (", ..." if len(names) > SHOWN else "")
