"""The report's section on a search by `ane-sweep best`: the trials in order, and the cells that were not timed."""

import re
from collections import defaultdict
from collections.abc import Sequence

from ane_sweep.bridge.record import Record
from ane_sweep.report import figures
from ane_sweep.report.blocks import Grid, Para, Plots, Section, figure_text
from ane_sweep.report.figures import Point
from ane_sweep.results import ranking
from ane_sweep.results.search_log import TWIN, SearchLog, kind_of_reason


def section(log: SearchLog | None, records: Sequence[Record]) -> Section | None:
    if log is None:
        return None
    summary = log.summary or f"{len(log.trials)} cells timed, {log.how}"
    text = Para(f"{log.goal}: {summary}; {len(log.never)} left out.")
    places = {record.cell_key: n for n, record in enumerate(records)}
    drawn = [made for made in (_front(log, places), _order(log, places)) if made is not None]
    return Section("Search", [text, *([Plots(drawn)] if drawn else []), *_trial_table(log), *_untimed_table(log)])


def _front(log: SearchLog, cells: dict[str, int]) -> tuple[str, str] | None:
    """Draw the trials by two figures, with a line along those that no other trial beats in both; None without two
    figures.

    The figures are two objectives, or the objective and the first limit's figure.
    """
    signs = log.goal.objectives | {
        name: sign for name, sign in log.goal.limited_figures() if name not in log.goal.objectives
    }
    if len(signs) < 2:
        return None
    (x_name, x_sign), (y_name, y_sign) = list(signs.items())[:2]
    places: list[tuple[float, float, int]] = []
    for n, trial in enumerate(log.trials):
        x, y = trial.figures.get(x_name), trial.figures.get(y_name)
        if x is not None and y is not None:
            places.append((x, y, n))
    if len(places) < 2:
        return None
    gains = [(x_sign * x, y_sign * y) for x, y, _ in places]
    line = sorted(place for place, gain in zip(places, gains) if not any(ranking.beats(other, gain) for other in gains))
    points = [_point(log, cells, n, x, y) for x, y, n in places]
    svg = figures.lines(
        [([x for x, _, _ in line], [y for _, y, _ in line], 0)], points, x_label=x_name, y_label=y_name, name="front"
    )
    wide = "; grey: beyond a limit" if any(_series(log, n) for _, _, n in places) else ""
    return svg, f"the line joins what no other trial beats in both{wide}; large: best"


def _point(log: SearchLog, cells: dict[str, int], n: int, x: float, y: float) -> Point:
    trial = log.trials[n]
    return x, y, cells.get(trial.cell, -1), _series(log, n), 5.5 if trial.cell in log.best else 4.0, trial.label


def _series(log: SearchLog, n: int) -> int:
    """Return the colour of a trial: grey if it breaks a limit."""
    return 8 if any(not log.goal.holds(name, value) for name, value in log.trials[n].figures.items()) else 0


def _order(log: SearchLog, cells: dict[str, int]) -> tuple[str, str] | None:
    """Draw the trials in order, and the best value so far."""
    name, sign = next(iter(log.goal.objectives.items()))
    values = [(n, value) for n, trial in enumerate(log.trials) if (value := trial.figures.get(name)) is not None]
    if not values:
        return None
    points = [_point(log, cells, n, n + 1.0, value) for n, value in values]
    best, xs, ys = None, [], []
    for n, value in values:
        if not _series(log, n):
            best = value if best is None else sign * max(sign * best, sign * value)
        if best is not None:
            xs.append(n + 1.0)
            ys.append(best)
    svg = figures.lines([(xs, ys, 0)], points, x_label="trial", y_label=name, name="trials")
    return svg, "trials in their order; the line is the best so far within the limits"


def _trial_table(log: SearchLog) -> list[Grid]:
    if not log.trials:
        return []
    named = list(dict.fromkeys(figure for trial in log.trials for figure in trial.figures))
    rows = [
        [str(n), trial.label + (" (best)" if trial.cell in log.best else "")]
        + [figure_text(trial.figures.get(name)) for name in named]
        + [kind_of_reason(trial.never) if trial.never else "timed"]
        for n, trial in enumerate(log.trials, 1)
    ]
    heads, right = ["trial", "cell", *named, "what came of it"], [True, False, *(True for _ in named), False]
    return [Grid(heads, rows, right, fold=f"{len(rows)} trials in order")]


def _untimed_table(log: SearchLog) -> list[Grid]:
    """Return the table of the cells that were not timed, by kind of reason."""
    groups: dict[str, list[str]] = defaultdict(list)
    for left in log.never:
        kind = kind_of_reason(left.reason)
        own = re.search(r" is (\S+), and ", left.reason)  # its figure, or the cell that it equals
        detail = "" if left.reason == kind else f" ({own[1] if own else left.reason.removeprefix(TWIN)})"
        groups[kind].append(left.label + detail)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    rows = [[str(len(labels)), reason, "; ".join(labels)] for reason, labels in ordered]
    return [Grid(["cells", "why not timed", "which"], rows, [True, False, False])] if rows else []
