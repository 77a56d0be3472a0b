"""The log of one search by `ane-sweep best` (search.json): its goal, its trials in order, and the cells that were not timed."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep.bridge import kept

FILE_NAME = "search.json"
LEFT_OUT = "left out of the search: "  # begins a record's reason
TWIN = "it is cut where another is: "


@dataclass(frozen=True)
class LoggedGoal:
    """The goal of a search as words: objectives (figure -> 1 if more is better, -1 if less is) and limits (`psnr_db>=40`)."""

    objectives: dict[str, int]
    limits: list[str]

    def limited_figures(self) -> list[tuple[str, int]]:
        """Return (figure, 1 for a lower limit or -1 for an upper one) of each limit."""
        return [(re.split("[<>]=", limit)[0], 1 if ">=" in limit else -1) for limit in self.limits]

    def holds(self, name: str, value: float | None) -> bool:
        """Return True if a figure keeps to its limits; an unknown figure breaks none."""
        limits = zip(self.limited_figures(), self.limits)
        bounds = [(sign, float(limit.split("=")[1])) for (figure, sign), limit in limits if figure == name]
        return value is None or all(sign * value >= sign * bound for sign, bound in bounds)

    def __str__(self) -> str:
        wanted = [f"{'largest' if sign > 0 else 'smallest'} {name}" for name, sign in self.objectives.items()]
        return ", ".join(wanted) + (f" with {', '.join(self.limits)}" if self.limits else "")


@dataclass(frozen=True)
class Trial:
    """A cell that the search tried. `values` has the axes that vary; `never` is the reason if it was not timed after all."""

    cell: str
    label: str
    figures: dict[str, float | None]
    values: dict[str, object] = field(default_factory=dict)
    never: str | None = None


@dataclass(frozen=True)
class UntimedCell:
    """A cell that the search did not time, and the reason."""

    cell: str
    label: str
    reason: str


@dataclass(frozen=True)
class SearchLog:
    """The content of search.json.

    best     keys of cells
    trials   in their order
    summary  the whole search in one sentence
    words    key of a best cell that the search drew -> the words of a sweep of that cell alone
    """

    goal: LoggedGoal
    how: str
    best: list[str]
    trials: list[Trial]
    never: list[UntimedCell]
    summary: str = ""
    words: dict[str, list[str]] = field(default_factory=dict)


def kind_of_reason(reason: str) -> str:
    """Return a reason without the figure or label of a single cell, so that reasons of one kind are equal."""
    if reason.endswith(" was asked for"):
        return f"{reason.split(' is ')[0]} breaks its limit"
    head, twin, _ = reason.partition(TWIN)
    return f"{head}{twin.rstrip(': ')}" if twin else reason


def read(folder: Path) -> SearchLog | None:
    """Return the log of the run in a folder, or None (with a warning if the file is damaged)."""
    return kept.read(folder / FILE_NAME, SearchLog, "the report shows no search")
