"""The head of a page and its first screen: the sweep's outcome, the answer, the best cells of each group under the limits,
and a plot of accuracy against the headline latency.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TypedDict

from ane_sweep.bridge import metrics
from ane_sweep.bridge.metrics import RANKED
from ane_sweep.bridge.record import Record, varying_axes
from ane_sweep.report import off_ane, picture, table, views
from ane_sweep.report.blocks import Best, BestRow, Block, Plots, Section, Widget
from ane_sweep.report.columns import Column
from ane_sweep.report.doubts import Doubt, about_all
from ane_sweep.results import ranking
from ane_sweep.results.answer import FETCH, answer
from ane_sweep.results.headline import HEADLINE, headline, headline_ms, name_chip

PICTURES = 12  # of the works with the most cells; the table has all
TIES = 4
ADVICE = 2
CHIPS = 3  # with estimates; the table of cells has all
PAIRS = 4_000  # of cells whose order the page's script can call sure or likely


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
    """Return the lines on the kinds of latency and on settings of all cells that differ from the defaults."""
    found = [
        line
        for line in table.list_head_lines(records)
        if line.startswith(("latency: ", "this host ms: ", "ANE shares: "))
    ]
    return [*found, f"all cells: {table.setting_words(changed)}"] if changed else found


def section(cells: views.Cells, records: Sequence[Record], runs: str) -> Section:
    """Return the section: the answer for all records, and of the shown cells, if two have all figures, the best ones,
    which the page's script recomputes at each limit.
    """
    works, said = ranking.group_by_work(cells.records), answer(records, runs)
    command = "".join(line.removeprefix(FETCH) for line in said if line.startswith(FETCH))
    more = [line for line in said[1:] if not line.startswith(FETCH)]
    made: list[Block] = [Widget("answer", [(said[0], more, command, len(works) > 1)], "\n\n".join(said))]
    if sum(map(len, works)) > 1:
        heads = [column.head for column in _columns(cells.records)]
        made += [limits(cells), Best(heads, rows(cells, works)), _pictures(cells, works), _reading(cells.records)]
        if len(works) == 1 and (advice := off_ane.advice(cells)[:ADVICE]):  # of several, their winners fill the place
            made.append(Widget("advice", [(text,) for text in advice]))  # Markdown has it in a section of its own
    return Section("Which cell to ship", made, kind="first")


def rows(cells: views.Cells, works: list[list[int]], limit: dict[str, float] | None = None) -> list[BestRow]:
    """Return a row for each winner of each group of comparable cells."""
    names, parts = views.work_names(cells, works), _columns(cells.records)
    return [
        BestRow(
            name if len(works) > 1 else "",
            winner.words(),
            views.within(cells, work, winner.cell),
            note(cells, work, winner, limit or {}),
            [part.cells[winner.cell] for part in parts],
            winner.cell,
            number,
            ranking.is_sound(cells.records[winner.cell]),
        )
        for number, (work, name) in enumerate(zip(works, names))
        for winner in ranking.choose_winners(cells.records, work, limit or {})
    ]


def note(cells: views.Cells, work: list[int], winner: ranking.Winner, limit: dict[str, float]) -> str:
    """Return the warnings about a winner: its status; of the first in speed also the cells that tie with it, or how sure
    its lead on the runner-up is.
    """
    texts = [_doubt_of_all(cells.records) or views.doubt(cells.records[winner.cell])]
    names = [views.within(cells, work, n) for n in winner.tied[:TIES]]
    if winner.tied:
        more = f" and {len(winner.tied) - TIES} more" if len(winner.tied) > TIES else ""
        texts.append(f"tie with {'; '.join(names)}{more}: {_explain_tie(cells.records[winner.cell])}")
    elif next(iter(ranking.choose_goals(cells.records, work).values())) in winner.goals:
        texts.append(_name_second(cells, work, winner.cell, limit))
    return ". ".join(filter(None, texts))


def _doubt_of_all(records: list[Record]) -> str:
    """Return what stands for a doubt that several cells have in common and none is without: the table names its number."""
    ranked = [records[n] for n in ranking.select_ranked(records)]
    alike = len(ranked) > 1 and len({views.doubt(record) for record in ranked}) == 1
    return "in doubt, as every cell" if alike and not ranking.is_sound(ranked[0]) else ""


def _name_second(cells: views.Cells, work: list[int], first: int, limit: dict[str, float]) -> str:
    """Return which cell comes second in speed and how sure that is; empty if none does that is as sound as the first."""
    goal, one = next(iter(ranking.choose_goals(cells.records, work))), cells.records[first]
    second, _ = ranking.choose_best(cells.records, goal, limit, [n for n in work if n != first])
    if second is None or ranking.is_sound(one) > ranking.is_sound(cells.records[second]):
        return ""
    sure = f": {ranking.how_sure(one, cells.records[second])}" if _is_estimated(one) else ""
    return f"before {views.within(cells, work, second)}{sure}"


def _is_estimated(record: Record) -> bool:
    latency = headline(record)
    return latency is not None and latency.chip is not None


def _explain_tie(record: Record) -> str:
    if headline(record) is None:
        return "their shares of the cost on the ANE are equal"
    if _is_estimated(record):
        return "the estimates differ by less than what published pairs tell apart"
    return "their timings do not differ by more than they scatter"


def _columns(records: list[Record]) -> list[Column]:
    """Return the columns of figures for winners: the headline, the shares on the Neural Engine, the report's metrics, and
    the estimates for some other chips.
    """
    specs = sorted(metrics.shown_in("report"), key=lambda spec: spec.name not in RANKED)
    latencies = table.latency_columns(records)
    others = max(0, CHIPS - sum(column.head.endswith("(est.)") for column in latencies))
    found = [*latencies, *table.share_columns(records)]
    found += table.metric_columns(records, [spec for spec in specs if spec.name != HEADLINE])
    return [*found, *list_other_estimates(records)[:others]]


def list_other_estimates(records: list[Record]) -> list[Column]:
    """Return a column for each chip with estimates that are not the headline."""
    return [column for column in table.further_columns(records) if column.head.endswith("(est.)")]


def limits(cells: views.Cells) -> Widget:
    """Return the filters and limits for all tables and plots of cells; an axis with few values is a choice."""
    every = range(len(cells.records))
    found = [(axis, list(dict.fromkeys(cells.value(n, axis) for n in every))) for axis in [*cells.axes, "status"]]
    axes = [(axis, values) for axis, values in found if 1 < len(values) <= 30]
    chips = list(dict.fromkeys(chip for record in cells.records for chip in ranking.compute_ane_shares(record)))
    offered, names = (
        ranking.list_limit_metrics(cells.records),
        set(map(views.name_speed, filter(headline, cells.records))),
    )
    speed = names.pop() if len(names) == 1 else metrics.METRICS[HEADLINE].column
    texts = [
        (spec.name, *((speed, "") if spec.name == HEADLINE else (spec.short, spec.shown_unit)), spec.better)
        for spec in offered
    ]
    return Widget("limits", [(axes, texts, chips)])


def _pictures(cells: views.Cells, works: list[list[int]]) -> Plots:
    names = views.work_names(cells, works)
    chosen = sorted(sorted(range(len(works)), key=lambda n: -len(works[n]))[:PICTURES])
    spots = {n: views.spots(cells, works[n]) for n in chosen}
    items = [(_draw(cells.records[works[n][0]], spots[n], f"{n} {names[n]}"), names[n]) for n in chosen]
    legend = picture.legend(list(itertools.chain.from_iterable(spots.values())))
    return Plots(items, legend, f"ops on the ANE, {_name_shares(cells.records)}:", works=chosen)


def _draw(record: Record, spots: list[picture.Spot], name: str) -> str:
    name = f"accuracy and {'latency' if headline(record) else 'cost'} {name}"
    return picture.draw(spots, name, views.name_speed(record), log="x" if headline(record) else "")


def _name_shares(records: list[Record]) -> str:
    """Return where the shares of the ops come from of which the plot's colour shows the lowest."""
    known = list(dict.fromkeys(name for record in records for name in ranking.compute_ane_shares(record)))
    chips = [name_chip(name) for name in known if name != "planned"]
    lowest = "lowest over " if len(chips) > 1 else ""
    said = [f"predicted, {lowest}{', '.join(chips)}"] if chips else []
    return " or ".join([*said, *(["planned by Core ML"] if "planned" in known else [])]) or "not predicted"


def _reading(records: list[Record]) -> Widget:
    """Return a line on how to read the first plot."""
    untested, works = ranking.describe_untested(records), ranking.group_by_work(records)
    score = any(len(ranking.choose_goals(records, work)) > len(RANKED) for work in works)
    beaten = f"in speed, size{', PSNR and score' if score else ' and PSNR'} together"
    shown = [records[n] for work in works for n in work]
    kinds = dict.fromkeys(map(_is_estimated, filter(headline, shown)))
    bars = [
        "bars: the estimate's band" if is_estimated else "bars: middle half of the samples" for is_estimated in kinds
    ]
    texts = [*bars, "larger circle: larger package", f"dark ring: no sound cell beats it {beaten}"]
    texts += ["dashed: in doubt"] if not all(map(ranking.is_sound, shown)) else []
    rows = "Click a row for its plot. " if len(works) > 1 else ""
    return Widget(
        "reading", [(f"{rows}In the plot, {'; '.join(texts)}.{f' Latencies: {untested}.' if untested else ''}",)]
    )


def facts(cells: views.Cells) -> dict[str, object]:
    """Return the facts with which the page's script chooses the best cells: names, axis values, texts and figures of each cell."""
    records, works = cells.records, ranking.group_by_work(cells.records)
    axes, parts = [*cells.axes, "status"], _columns(records)
    known: list[dict[str, object]] = [
        {"name": name, "axes": {axis: cells.value(n, axis) for axis in axes}} for n, name in enumerate(cells.names)
    ]
    for work in works:
        for n in work:
            known[n] |= {"short": views.within(cells, work, n), "figures": [part.cells[n] for part in parts]}
            known[n]["doubt"] = views.doubt(cells.records[n])
    leads = {n: words for work in works for n, words in _list_leads(records, work).items()}
    names = views.work_names(cells, works) if len(works) > 1 else [""] * len(works)
    return {
        "cells": known,
        "works": [
            {"name": name, "goals": ranking.choose_goals(records, work), "tie": _explain_tie(records[work[0]])}
            for name, work in zip(names, works)
        ],
        "choice": [
            fact | {name: ranking.get_figure(records[n], name) for name in ranking.ORDER} | {"leads": leads[n]}
            for n, fact in zip(ranking.select_ranked(records), ranking.list_facts(records))
        ],
        "order": ranking.ORDER,
        "signs": {
            name: metrics.METRICS[name].better
            for name in [*(spec.name for spec in ranking.list_limit_metrics(records)), *ranking.ORDER]
        },
        "ties": TIES,
        "doubt": _doubt_of_all(records),
    }


def _list_leads(records: list[Record], work: list[int]) -> dict[int, dict[int, str]]:
    """Return {cell: {slower cell: how sure the order is}} of a group's estimates: of all pairs, or in a large group of the
    cells next to each other in speed.
    """
    order = sorted(work, key=lambda n: headline_ms(records[n]) or 0.0)
    reach = max(8, PAIRS // len(work)) if _is_estimated(records[work[0]]) else 0
    return {
        n: {other: ranking.how_sure(records[n], records[other]) for other in order[place + 1 : place + 1 + reach]}
        for place, n in enumerate(order)
    }
