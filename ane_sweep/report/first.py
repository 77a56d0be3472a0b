"""The head of a page and its first screen: the sweep's outcome, the best cells of each group under the limits, and a
plot of accuracy against latency.
"""

import itertools
from collections import Counter
from typing import TypedDict

from ane_sweep.bridge import metrics
from ane_sweep.bridge.metrics import RANKED
from ane_sweep.bridge.record import Record, varying_axes
from ane_sweep.report import off_ane, picture, table, views
from ane_sweep.report.blocks import Best, BestRow, Block, Plots, Section, Widget, figure_text
from ane_sweep.report.columns import Column
from ane_sweep.report.doubts import Doubt, about_all
from ane_sweep.results import headline, ranking

PICTURES = 12  # of the works with the most cells; the table has all
TIES = 4
ADVICE = 2


class Head(TypedDict):
    """The texts above the first section."""

    title: str
    sweep: str
    counts: list[tuple[str, int]]
    lines: list[str]
    cautions: list[str]


def head(records: list[Record], doubts: list[Doubt]) -> Head:
    """Return the texts above the first section, including warnings that concern every cell's figures."""
    return Head(
        title=title(records),
        sweep=records[0].sweep,
        counts=list(Counter(record.status.value for record in records).items()),
        lines=lines(records, table.split_settings(records)[0]),
        cautions=[doubt.text for doubt in about_all(doubts, records) if doubt.meaning],
    )


def title(records: list[Record]) -> str:
    """Return the title, the models and the varying axes: `minilm: variant, chunks, precision`."""
    models = list(dict.fromkeys(str(record.cell.get("model", "-")) for record in records))
    named = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
    others = [axis for axis in varying_axes(records) if axis != "model"]
    return f"{named}: {', '.join(others)}" if others else named


def lines(records: list[Record], changed: dict[str, object]) -> list[str]:
    """Return the lines on the timing and on settings of all cells that differ from the defaults."""
    found = [line for line in table.list_head_lines(records) if line.startswith("latency: ")]
    return [*found, f"all cells: {table.setting_words(changed)}"] if changed else found


def section(cells: views.Cells) -> Section | None:
    """Return the section, or None if fewer than two cells have all figures. The page's script recomputes the rows at each limit."""
    works = ranking.group_by_work(cells.records)
    if sum(map(len, works)) < 2:
        return None
    made: list[Block] = [limits(cells), Best([column.head for column in _columns(cells.records)], rows(cells, works))]
    made += [_pictures(cells, works), _reading(cells.records)]
    if len(works) == 1 and (advice := off_ane.advice(cells)[:ADVICE]):  # of several, their winners fill the place
        made.append(Widget("advice", [(text,) for text in advice]))  # Markdown has it in a section of its own
    return Section("Best cells", made, kind="first")


def rows(cells: views.Cells, works: list[list[int]], limit: dict[str, float] | None = None) -> list[BestRow]:
    """Return a row for each winner of each group of comparable cells."""
    names, parts = views.work_names(cells, works), _columns(cells.records)
    return [
        BestRow(
            name if len(works) > 1 else "",
            winner.words(),
            views.within(cells, work, winner.cell),
            note(cells, work, winner),
            [part.cells[winner.cell] for part in parts],
            winner.cell,
            number,
            ranking.is_sound(cells.records[winner.cell]),
        )
        for number, (work, name) in enumerate(zip(works, names))
        for winner in ranking.choose_winners(cells.records, work, limit or {})
    ]


def note(cells: views.Cells, work: list[int], winner: ranking.Winner) -> str:
    """Return the warnings about a winner: its status, and the cells that are equally fast."""
    texts = [views.doubt(cells.records[winner.cell])]
    if winner.tied:
        names = [views.within(cells, work, n) for n in winner.tied[:TIES]]
        more = f" and {len(winner.tied) - TIES} more" if len(winner.tied) > TIES else ""
        texts.append(f"not told apart in latency: {'; '.join(names)}{more}")
    return ". ".join(filter(None, texts))


def _columns(records: list[Record]) -> list[Column]:
    """Return the columns of figures for winners; estimates without their bands, which are in the table of cells."""
    specs = sorted(
        metrics.shown_in("report"), key=lambda spec: (spec.name != headline.HEADLINE, spec.name not in RANKED)
    )
    found = table.metric_columns(records, specs)
    least = [min(ranking.compute_ane_shares(record).values(), default=None) for record in records]
    if any(share is not None for share in least):
        found.append(Column("ANE ops %", ["-" if share is None else f"{share:.0f}" for share in least], True))
    for chip in headline.estimated_chips(*records):
        known = [headline.estimate(record, chip) for record in records]
        found.append(Column(f"{chip} ms (est.)", [figure_text(one and one.ms, 3) for one in known], True))
    return found


def limits(cells: views.Cells) -> Widget:
    """Return the filters and limits for all tables and plots of cells; an axis with few values is a choice."""
    every = range(len(cells.records))
    found = [(axis, list(dict.fromkeys(cells.value(n, axis) for n in every))) for axis in [*cells.axes, "status"]]
    axes = [(axis, values) for axis, values in found if 1 < len(values) <= 30]
    chips = list(dict.fromkeys(chip for record in cells.records for chip in ranking.compute_ane_shares(record)))
    offered = ranking.list_limit_metrics(cells.records)
    texts = [(spec.name, spec.short, spec.shown_unit, spec.better) for spec in offered]
    return Widget("limits", [(axes, texts, chips)])


def _pictures(cells: views.Cells, works: list[list[int]]) -> Plots:
    names = views.work_names(cells, works)
    chosen = sorted(sorted(range(len(works)), key=lambda n: -len(works[n]))[:PICTURES])
    spots = {n: views.spots(cells, works[n]) for n in chosen}
    items = [(picture.draw(spots[n], f"accuracy and latency {n} {names[n]}"), names[n]) for n in chosen]
    legend = picture.legend(list(itertools.chain.from_iterable(spots.values())))
    return Plots(items, legend, "ops on the ANE (predicted, the least of the chips):", works=chosen)


def _reading(records: list[Record]) -> Widget:
    """Return a line on how to read the first plot."""
    untested = ranking.describe_untested(records)
    score = any(ranking.choose_goals(records, work).keys() - RANKED.keys() for work in ranking.group_by_work(records))
    beaten = f"in latency, size{', PSNR and score' if score else ' and PSNR'} together"
    bars = f"bars: middle half of the samples; area: package size; ringed: no sound cell beats it {beaten}; dashed: in doubt"
    return Widget("reading", [(f"In the picture, {bars}.{f' Latencies: {untested}.' if untested else ''}",)])


def facts(cells: views.Cells) -> dict[str, object]:
    """Return the facts with which the page's script chooses the best cells: names, axis values, texts and figures of each cell."""
    works, axes, parts = ranking.group_by_work(cells.records), [*cells.axes, "status"], _columns(cells.records)
    known: list[dict[str, object]] = [
        {"name": name, "axes": {axis: cells.value(n, axis) for axis in axes}} for n, name in enumerate(cells.names)
    ]
    for work in works:
        for n in work:
            known[n] |= {"short": views.within(cells, work, n), "figures": [part.cells[n] for part in parts]}
            known[n]["doubt"] = views.doubt(cells.records[n])
    return {
        "cells": known,
        "works": views.work_names(cells, works) if len(works) > 1 else [""],
        "choice": ranking.list_facts(cells.records),
        "figures": {
            spec.name: [spec.short, spec.shown_unit, spec.better] for spec in ranking.list_limit_metrics(cells.records)
        },
        "goals": [ranking.choose_goals(cells.records, work) for work in works],
        "ties": TIES,
        "headline": headline.HEADLINE,
    }
