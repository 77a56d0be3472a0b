"""What `ane-sweep best` did, as the report shows it: the trials in their order, and what was never timed and why."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ane_sweep.bridge import kept
from ane_sweep.bridge.record import Record
from ane_sweep.report import choice, figures
from ane_sweep.report.blocks import Grid, Para, Plots, Section
from ane_sweep.report.figures import Point

FILE_NAME = "search.json"
LEFT_OUT = "left out of the search: "  # begins a record's reason
TWIN = "it is cut where another is: "


@dataclass(frozen=True)
class Goal:
    objectives: dict[str, int]
    limits: list[str]

    def limited(self) -> list[tuple[str, int]]:
        """(figure, 1 where at least so much is asked for and -1 where at most)."""
        return [(re.split("[<>]=", limit)[0], 1 if ">=" in limit else -1) for limit in self.limits]

    def holds(self, name: str, value: float | None) -> bool:
        """Whether a figure keeps to its limits; one that is not known breaks none."""
        asked = [
            (sign, float(limit.split("=")[1])) for (of, sign), limit in zip(self.limited(), self.limits) if of == name
        ]
        return value is None or all(sign * value >= sign * least for sign, least in asked)

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


def section(found: Found | None, records: Sequence[Record]) -> Section | None:
    if found is None:
        return None
    summary = found.summary or f"{len(found.trials)} cells timed, {found.how}"
    blocks = [Para(f"{found.goal}: {summary}; {len(found.never)} not timed.")]
    return Section(
        "Search",
        [
            *blocks,
            *_pictures(found, {record.cell_key: n for n, record in enumerate(records)}),
            *_table(found),
            *_never(found),
        ],
    )


def _pictures(found: Found, cells: dict[str, int]) -> list[Plots]:
    drawn = [made for made in (_front(found, cells), _order(found, cells)) if made is not None]
    return [Plots(drawn)] if drawn else []


def _front(found: Found, cells: dict[str, int]) -> tuple[str, str] | None:
    """The trials by two figures (two objectives; or the objective and what the first limit is of), and those of them that
    no other beats in both."""
    signs = found.goal.objectives | {
        name: sign for name, sign in found.goal.limited() if name not in found.goal.objectives
    }
    if len(signs) < 2:
        return None
    (x_name, x_sign), (y_name, y_sign) = list(signs.items())[:2]
    places: list[tuple[float, float, int]] = []
    for n, trial in enumerate(found.trials):
        x, y = trial.figures.get(x_name), trial.figures.get(y_name)
        if x is not None and y is not None:
            places.append((x, y, n))
    if len(places) < 2:
        return None
    gains = [(x_sign * x, y_sign * y) for x, y, _ in places]
    line = sorted(place for place, gain in zip(places, gains) if not any(choice.beats(other, gain) for other in gains))
    points = [_point(found, cells, n, x, y) for x, y, n in places]
    svg = figures.lines(
        [([x for x, _, _ in line], [y for _, y, _ in line], 0)], points, x_label=x_name, y_label=y_name, name="front"
    )
    wide = "; grey: beyond a limit" if any(_series(found, n) for _, _, n in places) else ""
    return svg, f"the line joins what no other trial beats in both{wide}; large: best"


def _point(found: Found, cells: dict[str, int], n: int, x: float, y: float) -> Point:
    trial = found.trials[n]
    return x, y, cells.get(trial.cell, -1), _series(found, n), 5.5 if trial.cell in found.best else 4.0, trial.label


def _series(found: Found, n: int) -> int:
    """The grey of the palette for what is beyond a limit."""
    return 8 if any(not found.goal.holds(name, value) for name, value in found.trials[n].figures.items()) else 0


def _order(found: Found, cells: dict[str, int]) -> tuple[str, str] | None:
    """The trials one after the other, and the best so far."""
    name, sign = next(iter(found.goal.objectives.items()))
    values = [(n, value) for n, trial in enumerate(found.trials) if (value := trial.figures.get(name)) is not None]
    if not values:
        return None
    points = [_point(found, cells, n, n + 1.0, value) for n, value in values]
    best, xs, ys = None, [], []
    for n, value in values:
        if not _series(found, n):
            best = value if best is None else sign * max(sign * best, sign * value)
        if best is not None:
            xs.append(n + 1.0)
            ys.append(best)
    svg = figures.lines([(xs, ys, 0)], points, x_label="trial", y_label=name, name="trials")
    return svg, "trials in their order; the line is the best so far within the limits"


def _table(found: Found) -> list[Grid]:
    if not found.trials:
        return []
    named = list(dict.fromkeys(figure for trial in found.trials for figure in trial.figures))
    rows = [
        [str(n), trial.label + (" (best)" if trial.cell in found.best else "")]
        + ["-" if (value := trial.figures.get(figure)) is None else f"{value:.4g}" for figure in named]
        + [kind(trial.never) if trial.never else "timed"]
        for n, trial in enumerate(found.trials, 1)
    ]
    heads, right = ["trial", "cell", *named, "what came of it"], [True, False, *(True for _ in named), False]
    return [Grid(heads, rows, right, fold=f"{len(rows)} trials in order")]


def _never(found: Found) -> list[Grid]:
    """What was never timed, by the kind of its reason."""
    reasons = Counter(kind(left.reason) for left in found.never)
    rows = [
        [str(count), reason, "; ".join(_one(left, reason) for left in found.never if kind(left.reason) == reason)]
        for reason, count in reasons.most_common()
    ]
    return [Grid(["cells", "why not timed", "which"], rows, [True, False, False])] if rows else []


def _one(left: Left, reason: str) -> str:
    """A cell, with what the others of its kind have not: its figure, or the other cell."""
    if left.reason == reason:
        return left.label
    figure = re.search(r" is (\S+), and ", left.reason)
    return f"{left.label} ({figure[1] if figure else left.reason.removeprefix(TWIN)})"
