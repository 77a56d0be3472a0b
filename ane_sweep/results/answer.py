"""The answer of a sweep in sentences: which cell to ship, how sure that is, what the cell gives up, and how to fetch it."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.metrics import METRICS
from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, has_random_weights, varying_axes
from ane_sweep.bridge.runtimes import traits
from ane_sweep.results import ranking
from ane_sweep.results.headline import (
    HEADLINE,
    estimate,
    estimated_chips,
    explain_missing,
    headline,
    name_chip,
    shipped_chip,
)
from ane_sweep.terminal import count

LINES = 4  # of works; the table has all
_COST = ranking.SPEEDS[1]


def answer(records: Sequence[Record], out: str = "") -> list[str]:
    """Return the answer as plain sentences, the first of which names the cell to ship; empty without records.

    out   a word that `ane-sweep get` needs to find the run, such as `out=/tmp/x`; empty: none
    """
    if not records:
        return []
    works = _choose_works(records)
    if not works:
        return [_explain_nothing(records)]
    if len(works) == 1:
        first, *others = _answer_work(records, works[0])
        return [first, *others, _fetch(records, _winner(records, works[0]), out)]
    lines = [" ".join(_answer_work(records, work)[:2]) for work in works[:LINES]]
    more = [f"And {len(works) - LINES} more: the best cells of each are in the report."] if len(works) > LINES else []
    return [*lines, *more, _fetch(records, _winner(records, works[0]), out)]


def _choose_works(records: Sequence[Record]) -> list[list[int]]:
    """Return the groups of comparable cells; those without a latency only if no cell of the same question has one."""
    asked: dict[tuple[object, ...], list[list[int]]] = defaultdict(list)
    for work in ranking.group_by_work(records):
        asked[ranking.question_of(records[work[0]])].append(work)
    return [work for works in asked.values() for work in [one for one in works if headline(records[one[0]])] or works]


def _goal(records: Sequence[Record], work: Sequence[int]) -> str:
    return next(iter(ranking.ranked_by(records[work[0]])))


def _winner(records: Sequence[Record], work: Sequence[int]) -> int:
    """Return the cell of a work that comes first by latency, or by what stands for it."""
    first, _ = ranking.choose_best(records, _goal(records, work), {}, work)
    assert first is not None  # a work has a cell
    return first


def _answer_work(records: Sequence[Record], work: list[int]) -> list[str]:
    """Return the sentences of one group of comparable cells: the choice, what it gives up, other chips, cells left out."""
    first = _winner(records, work)
    sentences = [_choose(records, work, first), _weigh_others(records, work, first)]
    sentences += [_name_other_chips(records, work, first), _name_unweighed(records, work)]
    return [sentence for sentence in sentences if sentence]


def _choose(records: Sequence[Record], work: list[int], first: int) -> str:
    record = records[first]
    latency, name = headline(record), _name(records, record)
    ship = f"Ship {name}" if len(records) > 1 else name
    doubt = "" if record.status is Status.OK else f" [{record.status.value}: {record.reason}]"
    doubt += " [stand-in, no Mac]" if record.host.get("stand_in") else ""
    if latency is None:
        share = 100 * (ranking.get_figure(record, _COST) or 0.0)
        chip, why = shipped_chip(record), explain_missing(record)
        where = f" of {name_chip(chip)}" if chip else ""
        return (
            f"{ship}{doubt}: {share:.0f} % of its cost is predicted on the Neural Engine{where}"
            f"{_before_runner_up(records, work, first)}."
            + (f" No latency is estimated: {why.rstrip('.')}." if why else "")
        )
    if latency.kind == "measured":
        where = traits(str(record.realised.get("runtime"))).measured.replace(
            "{chip}", str(record.host.get("chip") or "this machine")
        )
        figure = f"{_ms(latency.ms)} measured ({where})"
    else:
        band = (
            f"; {latency.low:.2g} to {latency.high:.2g}" if latency.low is not None and latency.high is not None else ""
        )
        ship += f" on {name_chip(str(latency.chip))}"
        figure = f"{_ms(latency.ms)} (estimated{band})"
    return f"{ship}{doubt}: {figure}{_before_runner_up(records, work, first)}."


def _before_runner_up(records: Sequence[Record], work: list[int], first: int) -> str:
    """Return by how much a cell is before the next one and how sure that is; empty if it is the only one."""
    others = [n for n in work if n != first]
    if not others:
        return ""
    second = _winner(records, others)
    other = _difference(records, second, first)
    mine, its = headline(records[first]), headline(records[second])
    if mine is None or its is None:
        shares = [ranking.get_figure(records[n], _COST) or 0.0 for n in (first, second)]
        return f", as of {other}" if shares[0] == shares[1] else f", {100 * shares[1]:.0f} % with {other}"
    if not ranking.are_told_apart(records[first], records[second]):
        more = len(ranking.choose_best(records, HEADLINE, {}, work)[1]) - 1
        return f", not told apart from {other} ({_ms(its.ms)})" + (f" and {more} more" if more > 0 else "")
    sure = "sure" if mine.kind == "measured" else ranking.how_sure(mine, its)
    if mine.kind == "measured" and ranking.describe_untested([records[first], records[second]]):
        sure = "likely, as too few processes timed them for a test"
    return f", {its.ms / mine.ms:.3g} times as fast as {other} ({_ms(its.ms)}): {sure}"


def _weigh_others(records: Sequence[Record], work: list[int], first: int) -> str:
    """Return what a cell gives up in accuracy, score and size against the best cell in each."""
    gives, keeps = [], []
    for name in list(ranking.choose_goals(records, work))[1:]:
        spec = METRICS[name]
        own = ranking.get_figure(records[first], name)
        best, _ = ranking.choose_best(records, name, {}, work)
        top = None if best is None else ranking.get_figure(records[best], name)
        if own is None or best is None or top is None:
            continue
        text, unit = spec.text(own * spec.divisor), f" {spec.shown_unit}".rstrip()
        least = max(spec.least_change / spec.divisor, spec.least_share * abs(top))
        if abs(min(own, spec.ceiling) - min(top, spec.ceiling)) > least:
            gives.append(
                f"{spec.short} {text}{unit} against {spec.text(top * spec.divisor)} of {_difference(records, best, first)}"
            )
        else:
            keeps.append(f"{spec.short} {text}{unit}")
    random = (
        " (weights are random: PSNR says nothing about the trained model)" if has_random_weights(records[first]) else ""
    )
    if len(work) == 1:
        return f"Its {', '.join(keeps)}{random}." if keeps else ""
    said = [f"it gives up {'; '.join(gives)}"] if gives else []
    said += [f"no cell is better in {' or '.join(keeps)}"] if keeps else []
    sentence = "; ".join(said)
    return f"{sentence[:1].upper()}{sentence[1:]}{random}." if sentence else ""


def _name_other_chips(records: Sequence[Record], work: list[int], first: int) -> str:
    """Return which cell comes first on the other chips of an estimated sweep."""
    latency = headline(records[first])
    if latency is None or latency.kind != "estimated" or len(work) == 1:
        return ""
    found: dict[int, list[str]] = defaultdict(list)
    for chip in estimated_chips(*(records[n] for n in work)):
        known = {n: one.ms for n in work if (one := estimate(records[n], chip)) is not None}
        sound = {n: ms for n, ms in known.items() if ranking.is_sound(records[n])} or known
        best = min(sound, key=lambda n: (sound[n], n != first))
        if chip != latency.chip:
            some = "" if len(known) == len(work) else f", of the {len(known)} that have an estimate there"
            found[best].append(f"{name_chip(chip)} ({_ms(sound[best])}{some})")
    same = [f"first on {' and '.join(found[first])} too"] if first in found else []
    other = [f"{_difference(records, n, first)} on {' and '.join(chips)}" for n, chips in found.items() if n != first]
    return f"Estimated {'; '.join([*same, *other])}." if found else ""


def _name_unweighed(records: Sequence[Record], work: list[int]) -> str:
    """Return how many finished cells of the same question have no latency and are not weighed against this work."""
    question = ranking.question_of(records[work[0]])
    if headline(records[work[0]]) is None:
        return ""
    left = [r for r in records if ranking.question_of(r) == question and r.status is Status.OK and headline(r) is None]
    return f"Not weighed, as they have no latency: {count(len(left), 'cell')}." if left else ""


def _explain_nothing(records: Sequence[Record]) -> str:
    """Return why no cell of a sweep can be chosen, and what to do next."""
    bad = [record for record in records if record.status is not Status.OK]
    if not bad:
        return "No cell to name: none has all of latency or placement, PSNR and a package."
    statuses = ", ".join(f"{n} {status}" for status, n in Counter(record.status.value for record in bad).items())
    reason, cells = Counter(record.reason or "no reason recorded" for record in bad).most_common(1)[0]
    often = f" ({count(cells, 'cell')})" if len(bad) > 1 else ""
    return f"No cell to ship: {statuses}. The reason{often}: {reason.rstrip('.')}."


def _fetch(records: Sequence[Record], first: int, out: str) -> str:
    """Return the command that copies a cell's package out of the cache."""
    record = records[first]
    cell = flat_cell(record)
    chosen = ",".join(f"{as_typed(axis)}={_typed(cell[axis])}" for axis in varying_axes(list(records)) if axis in cell)
    run = f"{record.sweep}:{chosen}" if chosen else record.sweep
    folder = "./" + "".join(c if c.isalnum() or c in "-._" else "-" for c in str(record.cell.get("model", "cell")))
    return f"Its package: {shlex.join(['ane-sweep', 'get', run, folder, *([out] if out else [])])}"


def _typed(value: object) -> str:
    return (
        {True: "true", False: "false"}.get(value, format_value(value))
        if isinstance(value, bool)
        else format_value(value)
    )


def _name(records: Sequence[Record], record: Record) -> str:
    """Return the model and every axis that varies: `minilm variant=original chunks=2`."""
    axes = (axis for axis in varying_axes(list(records)) if axis != "model")
    return " ".join([str(record.cell.get("model", "the cell")), *_words(record, axes)])


def _difference(records: Sequence[Record], other: int, first: int) -> str:
    """Return the axes of a cell that differ from those of the first: `variant=original`."""
    cell, base = flat_cell(records[other]), flat_cell(records[first])
    axes = [axis for axis in varying_axes(list(records)) if cell.get(axis) != base.get(axis)]
    return " ".join(_words(records[other], axes)) or "the same request"


def _words(record: Record, axes: Iterable[str]) -> list[str]:
    cell = flat_cell(record)
    return [f"{as_typed(axis)}={format_value(cell[axis])}" for axis in axes if axis in cell]


def _ms(ms: float) -> str:
    return f"{ms:.3g} ms"
