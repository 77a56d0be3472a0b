"""The effect of each axis: for each value, or range of a free one, the best cell with it, and why other cells were not timed."""

from collections import Counter
from collections.abc import Iterable

from ane_sweep import tables
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.record import Record
from ane_sweep.search.goal import figure
from ane_sweep.search.search import SETTLED, Search, is_eligible

LISTED = 6  # different numbers of a free value; more are shown as STRETCHES of equal width
STRETCHES = 4


def tabulate_objective(found: Search, records: list[Record], best: Record) -> list[str]:
    """Return the lines of a table of the first objective by the values of each varying axis."""
    name, sign = next(iter(found.goal.objectives.items()))
    known = {record.cell_key: record for record in records if record.cell_key in found.values}
    first = figure(best, name)
    rows = []
    for axis in dict.fromkeys(axis for values in found.values.values() for axis in values):
        groups = _groups({key: found.values[key].get(axis) for key in known})
        for value, keys in groups:
            fits = [
                v for key in keys if is_eligible(found.goal, known[key]) and (v := figure(known[key], name)) is not None
            ]
            top = max(fits, key=lambda v: sign * v, default=None)
            mark = " (best)" if best.cell_key in keys else ""
            number = "" if top is None else f"{top:.4g}"
            more = f"{100 * (top / first - 1):+.0f} %" if top and first else ""
            rows.append((axis, value + mark, number, more, _rest(found, keys)))
    heads = ("axis", "value", name, "than the best", "of its cells")
    return tables.aligned(rows, heads=heads, right=(2, 3)).splitlines()


def _groups(values: dict[str, object]) -> Iterable[tuple[str, list[str]]]:
    """Return (common value or range, keys of the cells) of each group of cells."""
    different = set(map(format_value, values.values()))
    numbers = {key: value for key, value in values.items() if isinstance(value, float)}
    if len(different) <= LISTED or len(numbers) < len(values):
        return [(one, [key for key in values if format_value(values[key]) == one]) for one in _sorted(values.values())]
    low, high = min(numbers.values()), max(numbers.values())
    width = (high - low) / STRETCHES
    parts: dict[int, list[str]] = {}
    for key, value in numbers.items():
        parts.setdefault(min(STRETCHES - 1, int((value - low) / width)), []).append(key)
    return [(f"{low + n * width:.3g} to {low + (n + 1) * width:.3g}", parts[n]) for n in sorted(parts)]


def _sorted(values: Iterable[object]) -> list[str]:
    """Return the distinct values as text: numbers by size, others in their order."""
    once = {format_value(value): value for value in values}
    numbers = {word: value for word, value in once.items() if isinstance(value, (int, float))}
    return sorted(numbers, key=lambda word: numbers[word]) if len(numbers) == len(once) else list(once)


def _rest(found: Search, keys: list[str]) -> str:
    """Return how many of the cells were left out, with the most frequent reason; empty text if none was."""
    reasons = Counter(why for key in keys if (why := found.never.get(key)) and (why != SETTLED or found.times))
    word = "not timed" if found.times else "left out"
    return f"{reasons.total()} {word}: {reasons.most_common(1)[0][0]}" if reasons else ""
