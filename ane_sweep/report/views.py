"""The report's plots from records: points, lines and bars."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.metrics import METRICS, RANKED
from ane_sweep.bridge.record import Record, flat_cell, varying_axes
from ane_sweep.report import figures, picture
from ane_sweep.report.table import latency_text
from ane_sweep.results import ranking
from ane_sweep.results.headline import HEADLINE, headline, name_chip, spread

BARS = 40  # more bars or ladders than that are no picture any more; the table has them all
LABELS = 30  # points that may have their names beside them
LADDER = {
    "load_cold_ms": "load, cold",
    "load_cached_ms": "load, cached",
    "load_ms": "load",
    "latency_first_ms": "first call",
    "latency_early_ms": "early calls",
    "latency_median_ms": "steady",
    "latency_after_idle_ms": "after idle",
}


class Cells:
    """The cells of a sweep with their names and colours in the report, each name computed once.

    axes    the axes that vary; flat: each request with dotted keys; names: each cell's values on those axes
    shade   the axis that gives the colours (the machine, else the model, if it varies), and shades, its values
    """

    def __init__(self, records: Sequence[Record]):
        self.records = list(records)
        self.axes = varying_axes(self.records)
        self.flat = [flat_cell(record) for record in self.records]
        self.names = [self.words(n, self.axes) or str(cell.get("model", "cell")) for n, cell in enumerate(self.flat)]
        self.shade = next((axis for axis in ("host", "model", *self.axes) if axis in self.axes), "model")
        self.shades = list(dict.fromkeys(_text(cell.get(self.shade)) for cell in self.flat))

    def words(self, n: int, axes: list[str]) -> str:
        known = {axis: self.flat[n][axis] for axis in axes if self.flat[n].get(axis) is not None}
        return " ".join(
            value if isinstance(value, str) else f"{axis}={format_value(value)}" for axis, value in known.items()
        )

    def series(self, n: int) -> int:
        """Return the index of a cell's colour; from the ninth value on they share one."""
        return min(self.shades.index(_text(self.flat[n].get(self.shade))), 8)

    def value(self, n: int, axis: str) -> str:
        return _text(self.records[n].status.value if axis == "status" else self.flat[n].get(axis))


def name_speed(record: Record) -> str:
    """Return the name of a cell's headline latency, or of the share of the cost that stands for it: `M4 ms (estimated)`."""
    latency = headline(record)
    if latency is None:
        return f"{METRICS[ranking.SPEEDS[1]].short} %"
    return f"{name_chip(latency.chip)} ms (estimated)" if latency.chip else "latency ms (measured)"


def by_axis(cells: Cells, axis: str) -> str | None:
    """Draw the headline latency against one axis, with lines between cells that differ only in it. None without two values.

    Of cells with latencies of several kinds or chips, it draws those of the kind that most cells have.
    """
    kinds = {n: (name_speed(cells.records[n]), one.ms) for n, r in enumerate(cells.records) if (one := headline(r))}
    most = Counter(name for name, _ in kinds.values()).most_common(1)
    latencies = {n: ms for n, (name, ms) in kinds.items() if name == most[0][0]}
    values = _sorted({cells.value(n, axis): cells.flat[n].get(axis) for n in latencies})
    if len(values) < 2:
        return None
    others = [name for name in cells.axes if name != axis]
    groups: dict[tuple[str, ...], list[figures.Point]] = defaultdict(list)
    for n in latencies:
        groups[tuple(cells.value(n, name) for name in others)]
    gap = min(0.1, 0.6 / len(groups))
    lanes = {rest: (number - (len(groups) - 1) / 2) * gap for number, rest in enumerate(groups)}
    points: list[figures.Point] = []
    # cells that differ in something else stand beside each other, or their bars would hide others
    for n, y in latencies.items():
        rest = tuple(cells.value(n, name) for name in others)
        x = values.index(cells.value(n, axis)) + lanes[rest]
        points.append((x, y, n, cells.series(n), 3.4 if len(latencies) < 120 else 2.2, f"{cells.names[n]}: {y:.4g} ms"))
        groups[rest].append(points[-1])
    bars = [(p[0], max(low, p[1] / 100), high, p[3]) for p in points for low, high in [spread(cells.records[p[2]])]]
    paths = []
    for group in (sorted(group) for group in groups.values() if len(group) > 1):
        colours = {p[3] for p in group}
        paths.append(([p[0] for p in group], [p[1] for p in group], colours.pop() if len(colours) == 1 else 8))
    return figures.lines(
        paths, points, x_label=axis, y_label=most[0][0], ticks=values, bars=bars if len(latencies) <= BARS else [],
        name=f"latency by {axis}",
    )  # fmt: skip


def _sorted(values: dict[str, object]) -> list[str]:
    numbers = {text: n for text, n in values.items() if isinstance(n, (int, float)) and not isinstance(n, bool)}
    return sorted(values, key=numbers.__getitem__) if len(numbers) == len(values) else list(values)


def _text(value: object) -> str:
    return "-" if value is None else format_value(value)


def work_names(cells: Cells, works: Sequence[Sequence[int]]) -> list[str]:
    """Return a name for each group of comparable cells: the axes that are equal within the group but differ between
    groups, else its model.
    """
    axes = [axis for axis in cells.axes if all(len({cells.value(n, axis) for n in work}) == 1 for work in works)]
    names = [cells.words(work[0], axes) or str(cells.flat[work[0]].get("model", "cell")) for work in works]
    twice = Counter(names)
    hosts = [cells.records[work[0]] for work in works]
    return [
        f"{name}, {record.realised.get('runtime')}, {record.host.get('chip')}" if twice[name] > 1 else name
        for name, record in zip(names, hosts)
    ]


def within(cells: Cells, work: Sequence[int], n: int) -> str:
    """Return a cell's values on the axes that vary within its group, or its model if none does."""
    axes = [axis for axis in cells.axes if len({cells.value(m, axis) for m in work}) > 1]
    return cells.words(n, axes) or str(cells.flat[n].get("model", "cell"))


def doubt(record: Record) -> str:
    """Return the warning about a cell's figures, or an empty text."""
    return "" if ranking.is_sound(record) else f"in doubt: {record.reason or record.status.value}"


def spots(cells: Cells, work: Sequence[int]) -> list[picture.Spot]:
    """Return the cells of one group as spots of the first plot; their area shows the package size.

    The share of the cost on the Neural Engine, in percent, stands for a latency that cells do not have.
    """
    records, on_front = cells.records, set(ranking.find_front(cells.records, work))
    scores = ranking.choose_goals(records, work).keys() - RANKED.keys()
    sizes = {n: ranking.get_figure(records[n], "package_bytes") or 0.0 for n in work}
    largest = max(sizes.values(), default=0.0) or 1.0
    found = []
    for n in work:
        record, ane = records[n], min(ranking.compute_ane_shares(records[n]).values(), default=None)
        x, share, db = (ranking.get_figure(record, name) or 0.0 for name in (*ranking.SPEEDS, "psnr_db"))
        if ranking.get_figure(record, HEADLINE) is None:
            x, low, high = (100 * share,) * 3
            speed = f"{x:.0f} % of the cost on the ANE"
        else:
            (low, high), speed = spread(record), f"{latency_text(record)} ms"
        words = f"{cells.names[n]}: {speed}, {db:.1f} dB, {sizes[n]:.3g} MB"
        words += "".join(f", {METRICS[name].short} {ranking.get_figure(record, name):.4g}" for name in scores)
        words += "" if ane is None else f", {ane:.0f} % of ops on the ANE"
        words += f"; {warning}" if (warning := doubt(record)) else ""
        radius = 3.0 + 4.0 * math.sqrt(sizes[n] / largest)
        label = within(cells, work, n) if len(work) <= LABELS else ""
        found.append(picture.Spot(n, x, db, low, high, ane, radius, not warning, n in on_front, words, label))
    return sorted(found, key=lambda spot: (spot.front, spot.sound, -spot.radius))


def placements(cells: Cells) -> list[tuple[str, str, int]]:
    """Return (title, SVG, number of bars left out) of a stacked plot per kind and chip.

    Cells with equal placement share a bar, and chips with equal placements share a plot.
    """
    shares: dict[tuple[str, str], dict[tuple[float, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for n, record in enumerate(cells.records):
        for entry in record.placement:
            if entry.ops.total:
                share = tuple(100.0 * entry.ops.share(unit) for unit in figures.UNITS)
                shares[entry.kind, entry.chip or ""][share].append(n)
    alike: dict[str, tuple[dict[tuple[float, ...], list[int]], list[str]]] = {}
    for (kind, chip), groups in shares.items():
        what = f"{name_chip(chip)} ({kind})".strip()
        alike.setdefault(repr((kind, dict(groups))), (groups, []))[1].append(what)
    found = []
    for groups, whats in alike.values():
        labels = group_names(cells, list(groups.values()))
        bars = [(label, dict(zip(figures.UNITS, share))) for label, share in zip(labels, groups)]
        bars.sort(key=lambda bar: -bar[1]["ane"])
        svg = figures.stacked(bars[:BARS], x_label="% of ops", name=f"placement {', '.join(whats)}")
        found.append((", ".join(whats), svg, max(0, len(bars) - BARS)))
    return found


def group_names(cells: Cells, groups: list[list[int]]) -> list[str]:
    """Return a name for each group of cells: their common words on the axes, or their number if names would be equal."""
    found = []
    for group in groups:
        words = []
        for axis in cells.axes:
            values = {cells.value(n, axis) for n in group}
            if len(values) == 1:
                word = values.pop()
                words.append(word if isinstance(cells.flat[group[0]].get(axis), str) else f"{axis}={word}")
        alone = cells.names[group[0]] if len(group) == 1 else f"{len(group)} cells"
        found.append(cut(" ".join(words) or alone))
    twice = Counter(found)
    return [f"{cut(label, 46)} ({len(group)})" if twice[label] > 1 else label for label, group in zip(found, groups)]


def cut(text: str, limit: int = 52) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def ladder_steps(record: Record) -> dict[str, float]:
    """Return {step: milliseconds} of a cell's known steps from a cold load to a steady call."""
    known = {words: record.value(name) for name, words in LADDER.items()}
    return {words: float(value) for words, value in known.items() if isinstance(value, (int, float)) and value > 0}


def ladder(cells: Cells, chosen: Sequence[int]) -> str | None:
    """Draw those of the chosen cells with the slowest loads or first calls, one line each."""
    rows = [(cells.names[n], ladder_steps(cells.records[n])) for n in chosen]
    rows = sorted((row for row in rows if len(row[1]) > 1), key=lambda row: -max(row[1].values()))[: BARS // 2]
    if not rows:
        return None
    steps = [words for words in LADDER.values() if any(words in values for _, values in rows)]
    return figures.ladder([(cut(label), values) for label, values in rows], steps, x_label="ms", name="ladder")
