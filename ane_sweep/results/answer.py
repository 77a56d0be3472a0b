"""The answer of a sweep in sentences: which cell to ship, how sure that is, what the cell gives up, and how to fetch it."""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.metrics import METRICS
from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, has_random_weights, select_by, varying_axes
from ane_sweep.bridge.runtimes import traits
from ane_sweep.folders import outputs_folder
from ane_sweep.results import ranking
from ane_sweep.results.advice import RUNS, advise
from ane_sweep.results.headline import (
    Latency,
    estimate,
    estimated_chips,
    explain_missing,
    headline,
    name_chip,
    shipped_chip,
)
from ane_sweep.terminal import count

FETCH = "Its package: "  # a command follows
LINES = 4  # of models and input lengths; the table has all
_COST = ranking.SPEEDS[1]
_DONE = (Status.OK, Status.DEGRADED, Status.FALLBACK)
_SOUND = (Status.OK, Status.SKIPPED)  # a search skips what it need not time
_OTHERWISE = re.compile(r", or [^(]*(?= \()")  # of an advice the first way is enough
_OPS = re.compile(r"\(\d+ ops?: ([^;)]+)")
_SAVES = re.compile(r"saves about ([\d.e+-]+) of ")
MORE_ACCURATE_DB = 3.0  # that a reader would take for an equal latency


@dataclass(frozen=True)
class Choice:
    """The choice among comparable cells.

    cells   all of them, in the order of the sweep
    first   the cell to ship; `second` is the runner-up
    tied    cells whose latency does not differ from that of `first` for sure
    axes    the axes that vary in the sweep
    """

    cells: list[Record]
    first: Record
    second: Record | None
    tied: list[Record]
    axes: list[str]


def answer(records: Sequence[Record], runs: str = RUNS) -> list[str]:
    """Return the answer as plain sentences, the first of which names the cell to ship; empty without records.

    runs   the folder of the runs, as a user would type it
    """
    if not records:
        return []
    choices = choose(records)
    if not choices:
        return _explain_nothing(records, runs)
    command = fetch(choices[0].first, choices[0].axes, runs)
    if len(choices) == 1:
        (one,) = choices
        lines = [_name_winner(one), _name_doubt(one), _weigh(one), _name_other_chips(one), _name_change(one)]
        lines += [_name_unweighed(one, records), _count_failures(records), command]
        return [line for line in lines if line]
    lines = [
        f"{_name_winner(one)} {_name_doubt(one)} {_weigh(one)}".replace("  ", " ").strip() for one in choices[:LINES]
    ]
    lines += [f"And {len(choices) - LINES} more."] if len(choices) > LINES else []
    return [line for line in [*lines, _count_failures(records), command] if line]


def choose(records: Sequence[Record]) -> list[Choice]:
    """Return the choice for each group of comparable cells; groups without a latency count only if no other cell of the
    same question has one.
    """
    axes = varying_axes(list(records))
    questions: dict[tuple[object, ...], list[list[Record]]] = defaultdict(list)
    for work in ranking.group_by_work(records):
        questions[ranking.question_of(records[work[0]])].append([records[n] for n in work])
    found = [[work for work in works if headline(work[0])] or works for works in questions.values()]
    return [_choose(work, axes) for works in found for work in works]


def _choose(cells: list[Record], axes: list[str]) -> Choice:
    goal = next(iter(ranking.ranked_by(cells[0])))
    first, tied = ranking.choose_best(cells, goal, {})
    second, _ = ranking.choose_best(cells, goal, {}, [n for n in range(len(cells)) if n != first])
    assert first is not None  # a group has a cell
    return Choice(cells, cells[first], None if second is None else cells[second], [cells[n] for n in tied], axes)


def _name_winner(choice: Choice) -> str:
    """Return which cell to ship, its latency or what stands for it, and how far it is before the runner-up."""
    record, latency = choice.first, headline(choice.first)
    axes = [axis for axis in choice.axes if axis != "model"]
    name = " ".join(filter(None, [str(record.cell.get("model", "the cell")), _words(record, axes)]))
    marks = "" if record.status in _SOUND else f" [{record.status}]"
    marks += " [stand-in, no Mac]" if record.host.get("stand_in") else ""
    where = f" on {name_chip(latency.chip)}" if latency and latency.chip else ""
    sentence = f"{'Ship ' if choice.second else ''}{name}{where}{marks}: {_figure(record, latency)}"
    if choice.second is not None:
        sentence += _compare(choice, choice.second)
    why = explain_missing(record)
    # the note below the table has the whole reason
    return f"{sentence}." + (f" No latency is estimated: {re.split('[:;] ', why)[0].rstrip('.')}." if why else "")


def _name_doubt(choice: Choice) -> str:
    reason = (choice.first.reason or "").rstrip(".")
    return f"In doubt: {reason}." if reason and choice.first.status not in _SOUND else ""


def _name_change(choice: Choice) -> str:
    """Return the change to the model that saves most of the estimated time; empty if none saves a hundredth of it."""
    latency = headline(choice.first)
    entries = (entry for entry in choice.first.placed("predicted") if latency and latency.chip == entry.chip)
    advice = [text for entry in entries for text in entry.advice or ()]
    found = [(float(saved[1]), text) for text in advice if (saved := _SAVES.search(text))]
    saving, text = max(found, default=(0.0, ""), key=lambda one: one[0])
    if latency is None or saving < 0.01 * latency.ms:
        return ""
    if _OPS.search(text) is None:  # it is about the ops of all other advice
        ops = dict.fromkeys(op[1] for one in advice if (op := _OPS.search(one)))
        text = text.replace(" (", f" ({', '.join(ops)}; ", 1)
    return f"To change: {_OTHERWISE.sub('', text)}."


def _count_failures(records: Sequence[Record]) -> str:
    """Return how many cells ended without figures, by status; empty if none did."""
    failed = Counter(r.status.value for r in records if r.status not in (*_DONE, Status.SKIPPED, Status.REFUSED))
    words = ", ".join(f"{n} {status.replace('_', ' ')}" for status, n in failed.items())
    return f"Of {count(len(records), 'cell')}, {words}." if failed else ""


def _figure(record: Record, latency: Latency | None) -> str:
    if latency is None:
        chip = shipped_chip(record)
        where = f"{name_chip(chip)}'s" if chip else "the"
        return f"{_share(record)} of its cost is predicted on {where} Neural Engine"
    if latency.kind == "measured":
        place = traits(str(record.realised.get("runtime"))).measured
        return f"{_ms(latency.ms)} measured ({place.format(chip=record.host.get('chip') or 'this machine')})"
    known = latency.low is not None and latency.high is not None
    return f"{_ms(latency.ms)} (estimated{f'; {latency.low:.2g} to {latency.high:.2g}' if known else ''})"


def _compare(choice: Choice, second: Record) -> str:
    """Return how far the first cell is before the second, and how sure that is."""
    mine, its, other = headline(choice.first), headline(second), _words(second, choice.axes, choice.first)
    if mine is None or its is None:
        return f", not told apart from {other}" if second in choice.tied else f", {_share(second)} with {other}"
    untested = mine.kind == "measured" and ranking.describe_untested([choice.first, second])
    if second in choice.tied:
        second, gain = _choose_more_accurate(choice) or (second, "")
        its, other = headline(second) or its, _words(second, choice.axes, choice.first)
        more = f", nor from {len(choice.tied) - 1} more" if len(choice.tied) > 1 else ""
        doubts = [not ranking.is_sound(one) for one in (choice.first, second)]
        few = f": {_explain_untold(choice.first, second)}" if untested and any(doubts) else ""
        return f", not told apart from {other} ({_ms(its.ms)}){gain}{more}{few}"
    sure: str = "sure" if mine.kind == "measured" else ranking.how_sure(choice.first, second)
    if untested:
        sure = "likely (too few processes for a test)"
    return f", {its.ms / mine.ms:.3g} times as fast as {other} ({_ms(its.ms)}): {sure}"


def _explain_untold(one: Record, other: Record) -> str:
    few = min(ranking.count_rounds(one), ranking.count_rounds(other)) or 1
    both = not ranking.is_sound(one) and not ranking.is_sound(other)
    words = "1 process is" if few == 1 else f"{few} processes are"
    return f"{words} too few for a test, and {'both are' if both else 'one is'} in doubt"


def _choose_more_accurate(choice: Choice) -> tuple[Record, str] | None:
    """Return (the most accurate of the tied cells, what it gains) if it is clearly more accurate than the first, else None."""
    goals = list(ranking.choose_goals(choice.cells, range(len(choice.cells))))[1:]
    for name in (name for name in goals if name != "package_bytes"):
        spec = METRICS[name]
        figures = {n: ranking.get_figure(record, name) for n, record in enumerate([choice.first, *choice.tied])}
        known = {n: min(value, spec.ceiling) for n, value in figures.items() if value is not None}
        best = max(known, key=lambda n: spec.better * known[n], default=0)
        if not best or 0 not in known:
            continue
        gain = spec.better * (known[best] - known[0])
        if name == "psnr_db" and gain >= MORE_ACCURATE_DB:
            return choice.tied[best - 1], f", which is {gain:.0f} dB more accurate"
        if spec.score and gain > max(spec.least_change / spec.divisor, spec.least_share * abs(known[0])):
            text, own = (spec.text(known[n] * spec.divisor) for n in (best, 0))
            return choice.tied[best - 1], f", whose {spec.short} is {text} against {own}"
    return None


def _weigh(choice: Choice) -> str:
    """Return what the cell gives up in accuracy, score and size against the best cell in each."""
    gives, keeps = [], []
    goals = list(ranking.choose_goals(choice.cells, range(len(choice.cells))))[1:]
    for name in sorted(goals, key=lambda name: name == "package_bytes"):  # the accuracy first
        spec, (best, _) = METRICS[name], ranking.choose_best(choice.cells, name, {})
        own, top = (ranking.get_figure(record, name) for record in (choice.first, choice.cells[best or 0]))
        if own is None or top is None:
            continue
        text, best_text = (spec.text(value * spec.divisor) for value in (own, top))
        words = f"{spec.short} {text} {spec.shown_unit}".rstrip()
        least = max(spec.least_change / spec.divisor, spec.least_share * abs(top))
        if abs(min(own, spec.ceiling) - min(top, spec.ceiling)) > least:
            gives.append(
                f"{words} against {best_text} with {_words(choice.cells[best or 0], choice.axes, choice.first)}"
            )
        else:
            keeps.append(words)
    parts = [f"it gives up {', '.join(gives)}"] if gives else []
    parts += [f"no cell is better in {' or '.join(keeps)}" if choice.second else " and ".join(keeps)] if keeps else []
    parts += ["with random weights PSNR says nothing about a trained model"] if has_random_weights(choice.first) else []
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}." if parts else ""


def _name_other_chips(choice: Choice) -> str:
    """Return which cell is estimated to come first on each of the other chips; empty if the latency is measured."""
    latency = headline(choice.first)
    if latency is None or latency.kind == "measured" or choice.second is None:
        return ""
    sound = [record for record in choice.cells if ranking.is_sound(record)] or choice.cells
    found: dict[str, list[str]] = defaultdict(list)
    for chip in estimated_chips(*sound):
        known = [
            (one.ms, record is not choice.first, n) for n, record in enumerate(sound) if (one := estimate(record, chip))
        ]
        ms, is_other, n = min(known)
        some = f"; {len(known)} of {len(sound)} cells have an estimate" if len(known) < len(sound) else ""
        if chip != latency.chip:
            name = _words(sound[n], choice.axes, choice.first) if is_other else "the same cell"
            found[name].append(f"{name_chip(chip)} ({_ms(ms)}{some})")
    parts = [f"{name} on {' and '.join(on)}" for name, on in found.items()]
    return f"Other chips, by estimate: {'; '.join(parts)}." if parts else ""


def _name_unweighed(choice: Choice, records: Sequence[Record]) -> str:
    """Return how many finished cells of the same question have no latency and so no part in the choice."""
    question = ranking.question_of(choice.first)
    done = [r for r in records if r.status in (Status.OK, Status.DEGRADED) and ranking.question_of(r) == question]
    left = [record for record in done if headline(record) is None]
    return f"Not weighed, without a latency: {count(len(left), 'cell')}." if left and headline(choice.first) else ""


def _explain_nothing(records: Sequence[Record], runs: str) -> list[str]:
    """Return how the cells of a sweep ended of which none can be chosen, then the commonest reason and what to do next."""
    bad = [record for record in records if record.status not in (Status.OK, Status.DEGRADED)]
    if not bad:
        return ["No cell to ship: none has a package, a PSNR, and a latency or a prediction."]
    statuses = ", ".join(f"{n} {status}" for status, n in Counter(record.status.value for record in bad).items())
    reasons = [record.reason or "no reason recorded" for record in bad]
    reason = Counter(reasons).most_common(1)[0][0]
    example = bad[reasons.index(reason)]
    next_step = advise(example.status.value, example, f"{runs}/{example.sweep}")
    return [f"No cell to ship: {statuses}.", f"{reason.rstrip('.')}. {next_step}"]


def fetch(record: Record, axes: list[str], runs: str) -> str:
    """Return the command that copies a cell's packages out of the cache, given the axes that vary in its sweep."""
    chosen = select_by(flat_cell(record), axes)
    folder = "./" + (re.sub(r"[^\w.-]+", "-", str(record.cell.get("model", ""))).strip("-.") or "cell")
    if Path(folder).exists():  # such as a checkpoint's own folder
        folder += "-package"
    is_default = Path(runs).resolve() == (outputs_folder(None) / "runs").resolve()
    words = ["get", f"{record.sweep}:{chosen}" if chosen else record.sweep, folder]
    return FETCH + shlex.join(["ane-sweep", *words, *([] if is_default else [f"out={Path(runs).parent}"])])


def _words(record: Record, axes: list[str], base: Record | None = None) -> str:
    """Return the values of a cell's axes as a user types them, or only those that differ from `base`."""
    cell, other = flat_cell(record), {} if base is None else flat_cell(base)
    differ = [axis for axis in axes if axis in cell and (base is None or cell[axis] != other.get(axis))]
    return " ".join(f"{as_typed(axis)}={format_value(cell[axis])}" for axis in differ) or (
        "the same again" if base else ""
    )


def _share(record: Record) -> str:
    return f"{100 * (ranking.get_figure(record, _COST) or 0.0):.0f} %"


def _ms(ms: float) -> str:
    return f"{ms:.3g} ms"
