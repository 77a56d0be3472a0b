"""The report's first plot: accuracy against the headline latency of the cells of one group; the colour shows the predicted unit.

Our code draws on matplotlib's axes: spreads as bars, a circle per cell (hollow: has warnings; ringed: on the front),
and names that cover neither each other nor a point.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ane_sweep.report import figures
from ane_sweep.report.blocks import macros

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLASSES = ((90.0, "90 % and more"), (50.0, "50 to 90 %"), (0.0, "under 50 %"))  # of the ops on the ANE, from the top
UNKNOWN = "not known"
_LETTER, _HEIGHT = 6.2, 11.0  # of a name, about: letters are of system-ui


@dataclass
class Spot:
    """One cell: its headline latency in ms with its spread, PSNR in dB, and the words of its tooltip.

    x     the latency, or for cells without one the percent of the cost on the Neural Engine; low, high: its spread
    ane   percent of its ops on the ANE, or None; radius: in points
    """

    cell: int
    x: float
    db: float
    low: float
    high: float
    ane: float | None
    radius: float
    sound: bool
    front: bool
    words: str
    label: str


def shade(ane: float | None) -> int:
    """Return the index of a colour: 0 unknown, 1 little, 2 more, 3 most."""
    return 0 if ane is None else len(CLASSES) - next(n for n, (least, _) in enumerate(CLASSES) if ane >= least)


def legend(spots: Sequence[Spot]) -> list[tuple[str, str]]:
    """Return (word, CSS variable of its colour) of the classes that occur, the most first."""
    words = [UNKNOWN, *(word for _, word in reversed(CLASSES))]
    return [(words[n], f"--p{n}") for n in sorted({shade(spot.ane) for spot in spots}, reverse=True)]


def draw(spots: Sequence[Spot], name: str, x_label: str, log: str = "x") -> str:
    """Return the picture as an `<svg>` element. `log`: as `figures.frame` has it."""
    with figures.drawing(3.35) as (figure, axes):
        ends = [
            (x, spot.db, spot.cell, 0, 0.0, "")
            for spot in spots
            for x in (spot.low, spot.x, spot.high)
            if x > 0 or not log
        ]
        figures.frame(axes, ends, x_label, "PSNR dB", log=log)
        text = figures.svg(figure, axes, [], name)
        placed = _placed(axes, spots, figure.get_figheight() * 72)
    made = macros("points.svg.j2")["spots"]([_make_point(spot, *at) for spot, at in zip(spots, placed)])
    return text.rstrip().removesuffix("</svg>") + str(made) + _names(axes, spots, placed) + "</svg>\n"


def _placed(axes: "Axes", spots: Sequence[Spot], height: float) -> list[tuple[float, float, float, float]]:
    """Return (x, y, left and right end of the bar) of each spot in the drawing; a bar without an end stops at the frame."""
    left = axes.get_xlim()[0]
    found = []
    for spot in spots:
        ends = [(x if x > 0 else left, spot.db) for x in (spot.x, spot.low, spot.high)]
        (x, y), (low, _), (high, _) = axes.transData.transform(ends)
        found.append((x, height - y, low, high))
    return found


def _make_point(spot: Spot, x: float, y: float, low: float, high: float) -> dict[str, object]:
    colour = figures.CSS[figures.SHADES[shade(spot.ane)]]
    fill, dashes = (0.85, "") if spot.sound else (0.0, ";stroke-dasharray:2.5 2")
    edge, width = ("var(--ink, #1c2024)", 1.6) if spot.front else (colour, 1.2)
    paint = f"fill:{colour};fill-opacity:{fill};stroke:{edge};stroke-width:{width}{dashes}"
    places = {"x": x, "y": y, "low": low, "high": high, "radius": spot.radius}
    rounded = {key: f"{value:.1f}" for key, value in places.items()}
    return {**rounded, "cell": spot.cell, "paint": paint, "colour": colour, "words": spot.words}


def _names(axes: "Axes", spots: Sequence[Spot], placed: Sequence[tuple[float, float, float, float]]) -> str:
    """Return the names as SVG, each next to its point if it then covers no name, point or bar.

    Names of the front come first, then of cells without warnings, then of fast ones. A name away from its point has a
    line to it; a name without room is only in the tooltip.
    """
    frame, page = axes.get_window_extent(), axes.figure.bbox  # at 72 dots an inch: points
    left, width, bottom = frame.x0, page.width, page.height - frame.y0
    taken = [(x - s.radius, y - s.radius, x + s.radius, y + s.radius) for s, (x, y, *_) in zip(spots, placed)]
    taken += [(low, y - 1, high, y + 1) for _, y, low, high in placed]
    found = []
    named = [n for n, spot in enumerate(spots) if spot.label]
    for n in sorted(named, key=lambda n: (not spots[n].front, not spots[n].sound, spots[n].x)):
        wide = _LETTER * len(spots[n].label)
        for x, y, anchor, far in _sides(taken[n], placed[n]):
            start = x - wide * ("start", "middle", "end").index(anchor) / 2
            box = (start, y - _HEIGHT / 2, start + wide, y + _HEIGHT / 2)
            within = box[0] >= left and box[1] >= 0 and box[2] <= width and box[3] <= bottom
            overlaps = (box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
            if within and not any(overlaps):
                taken.append(box)
                place = {"cell": spots[n].cell, "x": f"{x:.1f}", "y": f"{y + 3.8:.1f}", "anchor": anchor}
                line = {"x": f"{placed[n][0]:.1f}", "y1": f"{placed[n][1]:.1f}", "y2": f"{y:.1f}"} if far else None
                found.append({**place, "fill": figures.CSS[figures.INK], "text": spots[n].label, "line": line})
                break
    return str(macros("points.svg.j2")["labels"](found, figures.NAME))


def _sides(box: tuple[float, ...], place: tuple[float, ...]) -> list[tuple[float, float, str, bool]]:
    """Return (x, y of its middle, anchor, True if it needs a line) of each place for a name, the nearest first."""
    (left, top, right, bottom), (x, _, low, high) = box, place
    gap, middle = 3.0, (top + bottom) / 2
    found = [(max(right, high) + gap, middle, "start", False), (min(left, low) - gap, middle, "end", False)]
    for step in range(4):
        away = _HEIGHT / 2 + 2 + step * (_HEIGHT + 2)
        for y in (top - away, bottom + away):
            found += [(x, y, "middle", step > 0), (x - gap, y, "start", step > 0), (x + gap, y, "end", step > 0)]
    return found
