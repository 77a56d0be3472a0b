"""The report's plots, as SVG text drawn by matplotlib, which MLflow brings along anyway.

Colours are CSS variables with a fallback, so one figure serves a light page, a dark page, and a viewer that knows
neither. Points are added as one circle per cell with `data-cell`, for the page's filters. matplotlib is imported
inside functions only (0.4 s).
"""

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ane_sweep.placement.types import Unit
from ane_sweep.report.blocks import macros

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

# What matplotlib is told, and what the SVG then says.
INK, GRID, MUTED = "#010101", "#010102", "#010103"
SERIES = [f"#0102{n:02x}" for n in range(9)]  # eight colours, and one for whatever comes after them
UNITS: dict[Unit, str] = {"ane": "#010301", "gpu": "#010302", "cpu": "#010303"}
SHADES = [f"#0104{n:02x}" for n in range(4)]  # the part on the Neural Engine: unknown, little, more, most
_PALETTE = ("#0b6bcb", "#c2410c", "#15803d", "#7c3aed", "#b7791f", "#0e7490", "#be185d", "#4d5b6a", "#8a8f98")
CSS = {
    INK: "var(--ink, #1c2024)",
    GRID: "var(--line, #dfe2e6)",
    MUTED: "var(--muted, #5c6670)",
    UNITS["ane"]: "var(--ane, #0b6bcb)",
    UNITS["gpu"]: "var(--gpu, #b7791f)",
    UNITS["cpu"]: "var(--cpu, #8a8f98)",
    **{s: f"var(--p{n}, {c})" for n, (s, c) in enumerate(zip(SHADES, ("#8a8f98", "#c2410c", "#b7791f", "#0b6bcb")))},
    **{sentinel: f"var(--s{n}, {colour})" for n, (sentinel, colour) in enumerate(zip(SERIES, _PALETTE))},
}
_STYLE: "dict[RcKeyType, object]" = {
    "svg.fonttype": "none", "svg.hashsalt": "ane-sweep", "text.parse_math": False, "font.size": 12, "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED, "xtick.color": MUTED, "ytick.color": MUTED, "text.color": INK, "axes.grid": True,
    "grid.color": GRID, "grid.linewidth": 0.6, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "figure.facecolor": "none", "axes.facecolor": "none", "axes.titlesize": 12,
    "xtick.labelsize": 11, "ytick.labelsize": 11,
    "axes.formatter.useoffset": False, "axes.formatter.limits": (-4, 7),
}  # fmt: skip
TICKS = 40  # more words beside each other cannot be read
WIDTH = 380 / 72  # inches: a phone's column, so that letters are as large as the page's; 72 points an inch
NAME = 11  # size of the words inside a plot
Span = tuple[float, int]  # width, series
Strip = tuple[float, float, Unit]  # where it begins, width, unit
Bar = tuple[str, list[Span], list[Strip]]  # its name, and what it is made of
Point = tuple[float, float, int, int, float, str]  # x, y, cell, series, radius in points, what it says when pointed at


def lines(
    paths: Sequence[tuple[list[float], list[float], int]],
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    ticks: Sequence[str] | None = None,
    bars: Sequence[tuple[float, float, float, int]] = (),
    name: str = "",
) -> str:
    """Draw points, and lines between related ones. `ticks` names the positions 0, 1, ... of an axis without numbers.

    paths   (xs, ys, series) of each line
    bars    (x, low, high, series) of each point's spread
    """
    with drawing(3.3) as (figure, axes):
        for x, low, high, series in bars:
            axes.plot([x, x], [low, high], color=SERIES[min(series, 8)], linewidth=1.4, alpha=0.45)
        for xs, ys, series in paths:
            alpha = 0.55 if len(paths) <= 40 else 0.2
            axes.plot(xs, ys, color=SERIES[min(series, 8)], linewidth=1.1, alpha=alpha, clip_on=False)
        frame(axes, points, x_label, y_label, ticks, log="y")
        return svg(figure, axes, points, name)


def stacked(bars: Sequence[tuple[str, dict[Unit, float]]], *, x_label: str, name: str = "") -> str:
    """Draw horizontal bars of shares in percent, ANE first, each under its name. bars: (label, {"ane", "gpu", "cpu"})."""
    with drawing(0.75 + 0.46 * len(bars)) as (figure, axes):
        rows = list(range(len(bars)))[::-1]
        left = [0.0] * len(bars)
        for unit, colour in UNITS.items():
            widths = [share.get(unit, 0.0) for _, share in bars]
            axes.barh(rows, widths, left=left, height=0.36, color=colour, label=unit.upper())
            left = [a + b for a, b in zip(left, widths)]
        for row, (_, share) in zip(rows, bars):
            axes.text(101, row, f"{share.get('ane', 0):.0f}", va="center", fontsize=NAME, color=MUTED)
        _named_rows(axes, [label for label, _ in bars], 0.22)
        axes.set(xlim=(0, 100), xlabel=x_label)
        return svg(figure, axes, [], name)


def ladder(rows: Sequence[tuple[str, dict[str, float]]], steps: Sequence[str], *, x_label: str, name: str = "") -> str:
    """Draw a line per cell under its name with a dot per step, on a logarithmic axis. rows: (label, {step: milliseconds})."""
    with drawing(0.95 + 0.46 * len(rows)) as (figure, axes):
        points: list[Point] = []
        for row, (label, values) in enumerate(rows):
            y = len(rows) - 1 - row
            known = [(steps.index(step), value) for step, value in values.items() if value > 0]
            if known:
                xs = [value for _, value in known]
                axes.plot([min(xs), max(xs)], [y, y], color=GRID, linewidth=2, solid_capstyle="round")
            points += [(value, y, -1, step, 4.0, f"{label}: {steps[step]} {value:.3g} ms") for step, value in known]
        axes.set_xscale("log")
        axes.plot([p[0] for p in points], [p[1] for p in points], linestyle="none", marker=",", alpha=0)
        axes.set(xlabel=x_label)
        _plain_ticks(axes.xaxis)
        _named_rows(axes, [label for label, _ in rows], 0.18)
        return svg(figure, axes, points, name)


def spans(rows: Sequence[Bar], *, x_label: str, name: str = "") -> str:
    """Draw a bar per row under its name, its parts in sequence from 0, and below it a thin strip by unit."""
    with drawing(0.75 + 0.46 * len(rows)) as (figure, axes):
        for y, (_, bar, strips) in zip(range(len(rows))[::-1], rows):
            left = 0.0
            for width, series in bar:
                if series < 9:  # 9: nothing is done, and nothing is drawn
                    axes.barh([y], [width], left=left, height=0.26, color=SERIES[min(series, 8)])
                left += width
            for start, width, unit in strips:
                axes.barh([y - 0.19], [width], left=start, height=0.07, color=UNITS[unit])
        _named_rows(axes, [label for label, _, _ in rows], 0.18)
        axes.set(xlabel=x_label)
        axes.set_xlim(left=0)
        return svg(figure, axes, [], name)


def _named_rows(axes: "Axes", labels: Sequence[str], above: float) -> None:
    """Write each row's name above it, where it takes no width from the plot."""
    for row, label in enumerate(reversed(labels)):
        axes.text(0, row + above, label, transform=axes.get_yaxis_transform(), fontsize=NAME, color=INK, va="bottom")
    axes.set_ylim(-0.5, len(labels) - 0.1)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)


def drift(
    values: Sequence[tuple[float, float | None]], marks: Sequence[tuple[float, float, str]], name: str = ""
) -> str:
    """Draw the PSNR of each value of a program against fp32, in the order in which they are made.

    values  (op index, dB; None for a value that is not a float); marks: (op index, dB, name) of the ops that lose most
    """
    with drawing(3.0) as (figure, axes):
        known = [(x, y) for x, y in values if y is not None and math.isfinite(y)]
        axes.plot([x for x, _ in known], [y for _, y in known], color=SERIES[0], linewidth=1.1)
        points = [(x, y, -1, 1, 4.0, f"{label}: {y:.1f} dB") for x, y, label in marks if math.isfinite(y)]
        frame(axes, points, "op, in the order of the program", "PSNR dB against fp32")
        return svg(figure, axes, points, name)


@contextmanager
def drawing(height: float) -> "Iterator[tuple[Figure, Axes]]":
    """Yield a figure of that height in inches and its axes, in the style of our plots."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), dpi=72, layout="constrained")
        yield figure, figure.subplots()


def frame(
    axes: "Axes", points: Sequence[Point], x_label: str, y_label: str, ticks: Sequence[str] | None = None, log: str = ""
) -> None:
    """Set labels, ticks and limits. `log`: the axes (`x`, `y`) that are logarithmic if values span more than a factor of 12."""
    axes.plot([p[0] for p in points], [p[1] for p in points], linestyle="none", marker=",", alpha=0)
    axes.margins(0.07)
    axes.set(xlabel=x_label, ylabel=y_label)
    if ticks is not None:
        crowded = sum(map(len, ticks)) > 38
        words = [tick if len(tick) <= 22 else tick[:21] + "…" for tick in ticks]
        every = math.ceil(len(ticks) / TICKS)
        turned, side = (28, "right") if crowded else (0, "center")
        axes.set_xticks(range(0, len(ticks), every), words[::every], rotation=turned, ha=side)
        axes.grid(axis="x", visible=False)
        axes.set_xlim(-0.4, len(ticks) - 0.6)
    else:
        _scale(axes.xaxis, [p[0] for p in points], "x" in log)
    _scale(axes.yaxis, [p[1] for p in points], "y" in log)


def _scale(axis: "Axis", values: Sequence[float], log: bool) -> None:
    """Make an axis logarithmic if its values span more than a factor of 12; else give it a few round ticks.

    The axis is never so narrow that its ticks differ only in the last digits.
    """
    from matplotlib.ticker import MaxNLocator

    low, high = min(values, default=0.0), max(values, default=0.0)
    if log and low > 0 and high / low > 12:
        axis.axes.set(**{"xscale" if axis is axis.axes.xaxis else "yscale": "log"})
        return _plain_ticks(axis)
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    middle = (low + high) / 2
    if values and high - low < 0.02 * abs(middle):
        axis.set_view_interval(0.985 * middle, 1.015 * middle, ignore=True)
    return None


def _plain_ticks(axis: "Axis") -> None:
    """Label 10, 100, 1,000 instead of powers, and 2 and 5 between them if there is room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high / max(low, 1e-12) < 500 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def svg(figure: "Figure", axes: "Axes", points: Sequence[Point], name: str) -> str:
    """Return the figure, with the points in it, as an `<svg>` element that scales with its column."""
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
    for sentinel, colour in CSS.items():
        text = text.replace(sentinel, colour)
    text = text.replace("<svg", str(macros("points.svg.j2")["begin"](name)), 1)
    return text.strip().removesuffix("</svg>") + _circles(axes, points, height) + "</svg>\n"


def _circles(axes: "Axes", points: Sequence[Point], height: float) -> str:
    if not points:
        return ""
    places = axes.transData.transform([(p[0], p[1]) for p in points])
    drawn = [
        {"cell": cell, "x": f"{x:.1f}", "y": f"{height - y:.1f}", "radius": f"{radius:.1f}", "words": words,
         "paint": f"fill:{(css := CSS[SERIES[min(series, 8)]])};fill-opacity:0.85;stroke:{css}"}
        for (x, y), (_, _, cell, series, radius, words) in sorted(zip(places, points), key=lambda one: -one[1][4])
    ]  # fmt: skip
    return str(macros("points.svg.j2")["circles"](drawn))
