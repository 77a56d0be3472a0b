"""The report's plots, as SVG text drawn by matplotlib, which MLflow brings along anyway.

Colours are CSS variables with a fallback, so one figure serves a light page, a dark page, and a viewer that knows
neither. Points are added here, one circle a cell with `data-cell`, for the page's filters to find. matplotlib is imported
inside functions only (0.4 s).
"""

import io
import math
import re
from collections.abc import Sequence
from typing import Any

from ane_sweep.bridge.figures import Unit
from ane_sweep.report import templating

# What matplotlib is told, and what the SVG then says.
INK, GRID, MUTED = "#010101", "#010102", "#010103"
SERIES = [f"#0102{n:02x}" for n in range(9)]  # eight colours, and one for whatever comes after them
UNITS: dict[Unit, str] = {"ane": "#010301", "gpu": "#010302", "cpu": "#010303"}
_PALETTE = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed", "#b7791f", "#0e7490", "#be185d", "#4d5b6a", "#8a8f98")
_CSS = {
    INK: "var(--ink, #1c2024)",
    GRID: "var(--line, #dfe2e6)",
    MUTED: "var(--muted, #5c6670)",
    UNITS["ane"]: "var(--ane, #0b6bcb)",
    UNITS["gpu"]: "var(--gpu, #b7791f)",
    UNITS["cpu"]: "var(--cpu, #8a8f98)",
    **{sentinel: f"var(--s{n}, {colour})" for n, (sentinel, colour) in enumerate(zip(SERIES, _PALETTE))},
}
_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "ane-sweep", "text.parse_math": False, "font.size": 9, "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED, "text.color": INK, "axes.grid": True,
    "grid.color": GRID, "grid.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "figure.facecolor": "none", "axes.facecolor": "none", "axes.titlesize": 9,
}  # fmt: skip
WIDTH = 4.5  # inches: a phone's column; 72 points an inch
_LETTER = 3.7  # width of a letter of a label, about
Point = tuple[float, float, int, int, float, str]  # x, y, cell, series, radius in points, what it says when pointed at


def lines(
    paths: Sequence[tuple[list[float], list[float], int]],
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    ticks: Sequence[str] | None = None,
    name: str = "",
) -> str:
    """Points, and lines between those that belong together. `ticks` names the positions 0, 1, ... of a plain axis.

    paths   (xs, ys, series) of each line
    """
    with _drawing():
        figure, axes = _figure(3.0)
        for xs, ys, series in paths:
            alpha = 0.55 if len(paths) <= 40 else 0.2
            axes.plot(xs, ys, color=SERIES[min(series, 8)], linewidth=1.1, alpha=alpha, clip_on=False)
        _frame(axes, points, x_label, y_label, ticks)
        return _svg(figure, axes, points, name)


def scatter(
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    front: Sequence[int],
    labels: Sequence[str] = (),
    name: str = "",
) -> str:
    """Points alone; the cells of `front` are filled, the others hollow. `labels`: for each point what stands beside it."""
    with _drawing():
        figure, axes = _figure(3.2)
        _frame(axes, points, x_label, y_label, None, log_x=True)
        svg = _svg(figure, axes, points, name, front=set(front))
        return svg.replace("</svg>", _labels(axes, points, labels) + "</svg>") if labels else svg


def stacked(bars: Sequence[tuple[str, dict[Unit, float]]], *, x_label: str, name: str = "") -> str:
    """Horizontal bars of shares in percent, ANE first. bars: (label, {"ane", "gpu", "cpu"})."""
    with _drawing():
        figure, axes = _figure(0.75 + 0.24 * len(bars))
        rows = list(range(len(bars)))[::-1]
        left = [0.0] * len(bars)
        for unit, colour in UNITS.items():
            widths = [share.get(unit, 0.0) for _, share in bars]
            axes.barh(rows, widths, left=left, height=0.72, color=colour, label=unit.upper())
            left = [a + b for a, b in zip(left, widths)]
        for row, (_, share) in zip(rows, bars):
            axes.text(101, row, f"{share.get('ane', 0):.0f}", va="center", fontsize=8, color=MUTED)
        axes.set(xlim=(0, 100), ylim=(-0.6, len(bars) - 0.4), xlabel=x_label)
        axes.set_yticks(rows, [label for label, _ in bars], fontsize=8)
        axes.grid(axis="y", visible=False)
        return _svg(figure, axes, [], name)


def ladder(rows: Sequence[tuple[str, dict[str, float]]], steps: Sequence[str], *, x_label: str, name: str = "") -> str:
    """A line a cell, a dot a step, on a logarithmic axis. rows: (label, {step: milliseconds})."""
    with _drawing():
        figure, axes = _figure(0.95 + 0.24 * len(rows))
        points: list[Point] = []
        for row, (label, values) in enumerate(rows):
            y = len(rows) - 1 - row
            known = [(steps.index(step), value) for step, value in values.items() if value > 0]
            if known:
                xs = [value for _, value in known]
                axes.plot([min(xs), max(xs)], [y, y], color=GRID, linewidth=2, solid_capstyle="round")
            points += [(value, y, -1, step, 3.4, f"{label}: {steps[step]} {value:.3g} ms") for step, value in known]
        axes.set_xscale("log")
        axes.plot([p[0] for p in points], [p[1] for p in points], linestyle="none", marker=",", alpha=0)
        axes.set(ylim=(-0.6, len(rows) - 0.4), xlabel=x_label)
        _plain_ticks(axes.xaxis)
        axes.set_yticks(range(len(rows))[::-1], [label for label, _ in rows], fontsize=8)
        axes.grid(axis="y", visible=False)
        return _svg(figure, axes, points, name)


def drift(
    values: Sequence[tuple[float, float | None]], marks: Sequence[tuple[float, float, str]], name: str = ""
) -> str:
    """PSNR of each value of a program against fp32, in the order in which they are made.

    values  (op index, dB or None where it is no float); marks: (op index, dB, name) of the ops that lose most
    """
    with _drawing():
        figure, axes = _figure(3.0)
        known = [(x, y) for x, y in values if y is not None and math.isfinite(y)]
        axes.plot([x for x, _ in known], [y for _, y in known], color=SERIES[0], linewidth=1.1)
        points = [(x, y, -1, 1, 4.0, f"{label}: {y:.1f} dB") for x, y, label in marks if math.isfinite(y)]
        _frame(axes, points, "op, in the order of the program", "PSNR dB against fp32", None, log=False)
        return _svg(figure, axes, points, name)


def _drawing() -> Any:
    import matplotlib

    return matplotlib.rc_context(_STYLE)


def _figure(height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=72, layout="constrained")
    return figure, figure.subplots()


def _frame(
    axes: Any,
    points: Sequence[Point],
    x_label: str,
    y_label: str,
    ticks: Sequence[str] | None,
    log_x: bool = False,
    log: bool = True,
) -> None:
    """Labels, ticks and limits; a logarithmic axis where values span more than a factor of 12."""
    axes.plot([p[0] for p in points], [p[1] for p in points], linestyle="none", marker=",", alpha=0)
    axes.margins(0.07)
    axes.set(xlabel=x_label, ylabel=y_label)
    if ticks is not None:
        crowded = sum(map(len, ticks)) > 44
        words = [tick if len(tick) <= 22 else tick[:21] + "…" for tick in ticks]
        axes.set_xticks(range(len(ticks)), words, rotation=28 if crowded else 0, ha="right" if crowded else "center")
        axes.grid(axis="x", visible=False)
        axes.set_xlim(-0.4, len(ticks) - 0.6)
    elif log_x and _wide([p[0] for p in points]):
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
    if log and "dB" not in y_label and _wide([p[1] for p in points]):
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)


def _wide(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > 12


def _plain_ticks(axis: Any) -> None:
    """10, 100, 1,000 in place of powers; and 2 and 5 between them where there is room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high / max(low, 1e-12) < 200 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def _svg(figure: Any, axes: Any, points: Sequence[Point], name: str, front: set[int] | None = None) -> str:
    """The figure as an `<svg>` element that scales with its column, with the points in it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    height = figure.get_figheight() * 72
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r"font: (\d[\d.]*px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)
    prefix = re.sub(r"\W", "", name) or "figure"  # several figures in one page: no two ids alike
    text = re.sub(r'(id="|url\(#|href="#)', lambda found: f"{found[1]}{prefix}-", text)
    for sentinel, colour in _CSS.items():
        text = text.replace(sentinel, colour)
    text = text.replace("<svg", str(templating.macros("points.svg.j2").begin(name)), 1)
    return text.strip().removesuffix("</svg>") + _circles(axes, points, height, front) + "</svg>\n"


def _circles(axes: Any, points: Sequence[Point], height: float, front: set[int] | None) -> str:
    if not points:
        return ""
    found = []
    places = axes.transData.transform([(p[0], p[1]) for p in points])
    order = sorted(range(len(points)), key=lambda n: (front is not None and points[n][2] in front, -points[n][4]))
    for n in order:
        (x, y), (_, _, cell, series, radius, words) = places[n], points[n]
        css = _CSS[SERIES[min(series, 8)]]
        hollow = front is not None and cell not in front
        paint = (
            f"fill:{css};fill-opacity:{0.12 if hollow else 0.85};stroke:{css};stroke-opacity:{0.55 if hollow else 1}"
        )
        place = {"cell": cell, "x": f"{x:.1f}", "y": f"{height - y:.1f}", "radius": f"{radius:.1f}"}
        found.append({**place, "paint": paint, "words": words})
    return str(templating.macros("points.svg.j2").circles(found))


def _labels(axes: Any, points: Sequence[Point], labels: Sequence[str]) -> str:
    """Each word beside its point: right, left, above or below of it, wherever it covers neither word nor point; those of
    the highest points first, and none where no side is free."""
    places = axes.transData.transform([(p[0], p[1]) for p in points])
    frame, (width, height) = axes.get_window_extent(), axes.figure.get_size_inches() * 72
    taken = [(x - p[4], height - y - p[4], x + p[4], height - y + p[4]) for (x, y), p in zip(places, points)]
    found = []
    for n in sorted(range(len(points)), key=lambda n: -points[n][1]):
        (left, top, right, bottom), wide = taken[n], _LETTER * len(labels[n])
        middle = (left + right) / 2
        for x, y, anchor in (
            (right + 2, (top + bottom) / 2, "start"),
            (left - 2, (top + bottom) / 2, "end"),
            (middle, top - 5, "middle"),
            (middle, bottom + 5, "middle"),
        ):
            start = x - wide * ("start", "middle", "end").index(anchor) / 2
            box = (start, y - 3.5, start + wide, y + 3.5)
            inside = frame.x0 <= start and box[2] <= width and box[3] <= height - frame.y0
            if inside and not any(_overlap(box, other) for other in taken[:n] + taken[n + 1 :]):
                taken.append(box)
                place = {"cell": points[n][2], "x": f"{x:.1f}", "y": f"{y + 2.3:.1f}", "anchor": anchor}
                found.append({**place, "fill": _CSS[MUTED], "text": labels[n]})
                break
    return str(templating.macros("points.svg.j2").labels(found))


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
