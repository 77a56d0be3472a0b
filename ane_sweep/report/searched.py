"""What `ane-sweep best` did, as the report shows it: the trials in their order, and what was never timed and why."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep.bridge import kept
from ane_sweep.report import figures
from ane_sweep.report.blocks import Grid, Para, Plots, Section
from ane_sweep.report.figures import Point

FILE_NAME = "search.json"
LEFT_OUT = "left out of the search: "  # begins a record's reason
TWIN = "it is cut where another is: "


@dataclass(frozen=True)
class Goal:
    objectives: dict[str, int]
    limits: list[str]

    def __str__(self) -> str:
        wanted = [f"{'largest' if sign > 0 else 'smallest'} {name}" for name, sign in self.objectives.items()]
        return ", ".join(wanted) + (f" with {', '.join(self.limits)}" if self.limits else "")


@dataclass(frozen=True)
class Trial:
    """values: of what varies; never: why it was tried and not timed."""

    cell: str
    label: str
    figures: dict[str, float | None]
    values: dict[str, Any] = field(default_factory=dict)
    never: str | None = None


@dataclass(frozen=True)
class Left:
    cell: str
    label: str
    reason: str


@dataclass(frozen=True)
class Found:
    """search.json. `best`: keys of cells; `trials` in their order; `summary`: of all in one sentence; `words`: of a best
    cell the words of a sweep of that cell alone, where the search drew it."""

    goal: Goal
    how: str
    best: list[str]
    trials: list[Trial]
    never: list[Left]
    summary: str = ""
    words: dict[str, list[str]] = field(default_factory=dict)


def kind(reason: str) -> str:
    """A reason without what is one cell's alone: its figure, its label."""
    if reason.endswith(" was asked for"):
        return f"{reason.split(' is ')[0]} breaks its limit"
    head, twin, _ = reason.partition(TWIN)
    return f"{head}{twin.rstrip(': ')}" if twin else reason


def read(folder: Path) -> Found | None:
    return kept.read(folder / FILE_NAME, Found, "the report shows no search")


def section(found: Found | None) -> Section | None:
    if found is None:
        return None
    summary = found.summary or f"{len(found.trials)} cells timed, {found.how}"
    blocks = [Para(f"{found.goal}: {summary}; {len(found.never)} not timed.")]
    return Section("Search", [*blocks, *_trials(found), *_never(found)])


def _trials(found: Found) -> list[Plots | Grid]:
    name, sign = next(iter(found.goal.objectives.items()))
    values = [(n, value) for n, trial in enumerate(found.trials) if (value := trial.figures.get(name)) is not None]
    if not values:
        return []
    points: list[Point] = [(float(n + 1), value, n, 0, 4.0, found.trials[n].label) for n, value in values]
    best, path = None, []
    for n, value in values:
        best = value if best is None else sign * max(sign * best, sign * value)
        path.append((float(n + 1), best))
    svg = figures.lines(
        [([x for x, _ in path], [y for _, y in path], 0)], points, x_label="trial", y_label=name, name="trials"
    )
    named = list(dict.fromkeys(figure for trial in found.trials for figure in trial.figures))
    rows = [
        [str(n), trial.label + (" (best)" if trial.cell in found.best else "")]
        + ["-" if (value := trial.figures.get(figure)) is None else f"{value:.4g}" for figure in named]
        for n, trial in enumerate(found.trials, 1)
    ]
    grid = Grid(
        ["trial", "cell", *named], rows, [True, False, *(True for _ in named)], fold=f"{len(rows)} trials in order"
    )
    return [Plots([(svg, "trials in their order; the line is the best so far, limits apart")]), grid]


def _never(found: Found) -> list[Grid]:
    reasons = Counter(left.reason for left in found.never)
    rows = [
        [str(count), reason, ", ".join(left.label for left in found.never if left.reason == reason)]
        for reason, count in reasons.most_common()
    ]
    return [Grid(["cells", "why not timed", "which"], rows, [True, False, False])] if rows else []
