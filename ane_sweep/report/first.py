"""The first screen of a report: the best cells of each work under the limits, and the picture of what they cost."""

from typing import Any

from ane_sweep.bridge import metrics
from ane_sweep.bridge.metrics import RANKED
from ane_sweep.bridge.record import Record
from ane_sweep.report import estimates, heading, off_ane, picture, table, views
from ane_sweep.report.blocks import Best, BestRow, Block, Plots, Section, Widget
from ane_sweep.report.doubts import Doubt
from ane_sweep.report.table import LATENCY, Column, latency_text
from ane_sweep.results import ranking

PICTURES = 12  # of the works with the most cells; the table has all
TIES = 4
ADVICE = 2


def section(cells: views.Cells) -> Section | None:
    """Return the section, or None if fewer than two cells have all figures. The page's script makes the rows again at each limit."""
    works = ranking.group_by_work(cells.records)
    if sum(map(len, works)) < 2:
        return None
    found = rows(cells, works)
    made: list[Block] = [limits(cells), Best([column.head for column in _columns(cells.records)], found)]
    made += [_pictures(cells, works), _reading(cells.records)]
    if len(works) == 1 and (advice := off_ane.advice(cells)[:ADVICE]):  # of several, their winners fill the place
        made.append(Widget("advice", [(text,) for text in advice]))  # Markdown has it in a section of its own
    return Section("Best cells", made, kind="first")


def rows(cells: views.Cells, works: list[list[int]], limit: dict[str, float] | None = None) -> list[BestRow]:
    """Return a row for each winner of each work."""
    names, parts = views.work_names(cells, works), _columns(cells.records)
    found = []
    for number, (work, name) in enumerate(zip(works, names)):
        for winner in ranking.choose_winners(cells.records, work, limit or {}, ranking.has_same_timing):
            n, told = winner.cell, note(cells, work, winner)
            row = BestRow(name if len(works) > 1 else "", winner.words(), views.within(cells, work, n), told)
            row.figures, row.cell, row.work = [part.cells[n] for part in parts], n, number
            row.sound = ranking.is_sound(cells.records[n])
            found.append(row)
    return found


def note(cells: views.Cells, work: list[int], winner: ranking.Winner) -> str:
    """Return the warnings about a winner: its status, and the cells that are as fast."""
    record = cells.records[winner.cell]
    said = [] if ranking.is_sound(record) else [f"in doubt: {record.reason or record.status.value}"]
    if winner.tied:
        names = [views.within(cells, work, n) for n in winner.tied[:TIES]]
        more = f" and {len(winner.tied) - TIES} more" if len(winner.tied) > TIES else ""
        said.append(f"not told apart in latency: {'; '.join(names)}{more}")
    return ". ".join(said)


def _columns(records: list[Record]) -> list[Column]:
    """Return the figures beside a winner; estimates without their bands, which stand in the table of cells."""
    found = [Column(metrics.METRICS[LATENCY].column, [latency_text(record) for record in records], True)]
    of_report = metrics.shown_in("report")
    found += table.metric_columns(records, [spec for spec in of_report if spec.name in RANKED and spec.name != LATENCY])
    found += table.metric_columns(records, [spec for spec in of_report if spec.name not in RANKED])
    if any(ranking.compute_ane_shares(record) for record in records):
        shares = [min(ranking.compute_ane_shares(record).values(), default=None) for record in records]
        found.append(Column("ANE ops %", ["-" if share is None else f"{share:.0f}" for share in shares], True))
    for chip in estimates.chips(records):
        bands = [estimates.band(record, chip) for record in records]
        found.append(Column(f"{chip} ms (est.)", ["-" if one is None else f"{one[0]:.3g}" for one in bands], True))
    return found


def limits(cells: views.Cells) -> Widget:
    """Return the filters and limits that act on every table and plot of cells; an axis with few values is a choice."""
    found = {
        axis: list(dict.fromkeys(cells.value(n, axis) for n in range(len(cells.records))))
        for axis in [*cells.axes, "status"]
    }
    axes = [(axis, values) for axis, values in found.items() if 1 < len(values) <= 30]
    chips = list(dict.fromkeys(chip for record in cells.records for chip in ranking.compute_ane_shares(record)))
    offered = [
        (spec.name, spec.short, spec.shown_unit, spec.better) for spec in ranking.list_limit_metrics(cells.records)
    ]
    return Widget("limits", [(axes, offered, chips)])


def _pictures(cells: views.Cells, works: list[list[int]]) -> Plots:
    names = views.work_names(cells, works)
    chosen = sorted(sorted(range(len(works)), key=lambda n: -len(works[n]))[:PICTURES])
    items, there = [], []
    for n in chosen:
        spots = views.spots(cells, works[n])
        there += spots
        items.append((picture.draw(spots, f"accuracy and latency {n} {names[n]}"), names[n]))
    head = "ops on the ANE (predicted, the least of the chips):"
    return Plots(items, picture.legend(there), head, works=chosen)


def _reading(records: list[Record]) -> Widget:
    """Return a line on how to read the picture."""
    untested = ranking.describe_untested(records)
    score = any(ranking.choose_goals(records, work).keys() - RANKED.keys() for work in ranking.group_by_work(records))
    beaten = f"in latency, size{', PSNR and score' if score else ' and PSNR'} together"
    bars = f"bars: middle half of the samples; area: package size; ringed: no sound cell beats it {beaten}; dashed: in doubt"
    return Widget("reading", [(f"In the picture, {bars}.{f' Latencies: {untested}.' if untested else ''}",)])


def facts(cells: views.Cells) -> dict[str, Any]:
    """Return the facts that the page's script chooses the best cells by: names, axis values, texts and figures of each cell."""
    works = ranking.group_by_work(cells.records)
    names, parts, axes = views.work_names(cells, works), _columns(cells.records), [*cells.axes, "status"]
    known: list[dict[str, Any]] = [
        {"name": name, "axes": {axis: cells.value(n, axis) for axis in axes}} for n, name in enumerate(cells.names)
    ]
    for work in works:
        for n in work:
            record = cells.records[n]
            doubt = "" if ranking.is_sound(record) else f"in doubt: {record.reason or record.status.value}"
            figures = [part.cells[n] for part in parts]
            known[n] |= {"short": views.within(cells, work, n), "figures": figures, "doubt": doubt}
    return {
        "cells": known,
        "works": names if len(works) > 1 else [""],
        "choice": ranking.list_facts(cells.records, ranking.has_same_timing),
        "figures": {
            spec.name: [spec.short, spec.shown_unit, spec.better] for spec in ranking.list_limit_metrics(cells.records)
        },
        "goals": [ranking.choose_goals(cells.records, work) for work in works],
        "ties": TIES,
    }


def head(records: list[Record], doubts: list[Doubt]) -> dict[str, Any]:
    """Return the texts above the first section."""
    changed, _ = table.split_settings(records)
    return {
        "title": heading.title(records),
        "sweep": records[0].sweep,
        "counts": heading.counts(records),
        "lines": heading.lines(records, changed),
        "cautions": [doubt.text for doubt in heading.of_all(doubts, records)],
    }
