"""The judgement of two sweeps: all changes between records of one request, in buckets, and which changes are regressions."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ane_sweep.bridge.metrics import RANKED, MetricSpec, compare_buckets, shown_in
from ane_sweep.bridge.record import Record
from ane_sweep.compare.match import Matched, Pair, match
from ane_sweep.compare.sides import FINE, both
from ane_sweep.errors import ConfigError
from ane_sweep.placement.types import Placement
from ane_sweep.results import ranking
from ane_sweep.results.difference import LEAST_PERCENT, LEVEL, Difference, compare_timings, figures_by_round
from ane_sweep.results.headline import MEASURED, answers_by_timing, estimate, estimated_chips, headline, name_chip
from ane_sweep.stats.student import FEWEST, holm

MAINLY = 0.5  # of a program's ops: above this it is said to run mainly on the Neural Engine
ESTIMATE_SHARE = 0.01  # no noise to exceed: an estimate is a function of the package
MOVED_SHARE = 0.8  # of the tested cells that move one way: then it is the machine rather than the programs

TIMED = {  # figure of a process -> the metric made of it, and its words in a change
    "median_ms": (MEASURED, ""),
    "prefill_median_ms": ("latency_prefill_median_ms", "prefill: "),
    "load_ms": ("load_ms", "load: "),
}
_SPECS = shown_in("compare")
_WORSE, _BETTER = compare_buckets(_SPECS)
REGRESSIONS = ("stopped working", "slower", "loads slower", "estimated slower", "off the ANE", *_WORSE)
IMPROVEMENTS = ("works again", "faster", "loads faster", "estimated faster", "onto the ANE", *_BETTER)
_UNTESTED = ("timing differs, but not enough", "timing untested", "timing not compared")
NOTES = ("fails otherwise", "placement moved", "estimated on one side only", *_UNTESTED)
_COMPARED = (
    "scores" if s.score else f"{s.short} size" if s.unit == "bytes" else s.short for s in _SPECS if not s.fallback
)
# compared besides timings, without a test
UNTIMED = ", ".join(dict.fromkeys(["status", "estimates", "placement", *_COMPARED]))
BUCKETS = (*REGRESSIONS, *IMPROVEMENTS, *NOTES)


@dataclass
class Change:
    """One change of one cell, in a bucket; `text` describes it with both figures. For a timing, `figure` is its name (TIMED)."""

    bucket: str
    cell: str
    text: str
    figure: str | None = None


@dataclass
class Comparison:
    """The comparison of two sweeps by their headline latencies. `tests` is the number of timings tested; `untested` has the
    label of every cell whose headlines could not be compared, with a short reason.
    """

    pairs: list[Pair]
    changes: list[Change]
    timings: dict[str, dict[str, Difference]]
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    tests: int = 0
    untested: dict[str, str] = field(default_factory=dict)

    @property
    def tested(self) -> int:
        """Return the number of cells whose headlines were compared: timings by a test, estimates by themselves."""
        return len(self.pairs) - len(self.untested)

    @property
    def compared_by(self) -> Counter[str]:
        """Return {what cells were compared by, in words: how many}."""
        return Counter(_compared_by(pair) for pair in self.pairs if pair.label not in self.untested)

    @property
    def buckets(self) -> list[str]:
        """Return the buckets in the order in which they are shown: estimates come first where they are the headline."""
        first = [] if any(answers_by_timing(pair.b) for pair in self.pairs) else ["stopped working", "estimated slower"]
        return list(dict.fromkeys([*first, *BUCKETS]))

    @property
    def regressed(self) -> bool:
        return any(change.bucket in REGRESSIONS for change in self.changes)

    def bucket(self, name: str) -> list[Change]:
        return [change for change in self.changes if change.bucket == name]


def comparison(out: Path, first: str, second: str, level: float = LEVEL, least: float = LEAST_PERCENT) -> Comparison:
    """Match two sides and judge the changes. Raises RunNotFound, ConfigError."""
    found = judge(match(*both(out, first, second)), level=level, least_percent=least)
    if found.pairs and all(pair.a == pair.b for pair in found.pairs):
        raise ConfigError(
            f"compare {first} {second}: both are {found.pairs[0].a.sweep}, and a run compared with itself shows nothing; "
            "name two runs, or cells of one as RUN:axis=value"
        )
    return found


def not_comparable(found: Comparison, *, across_hosts: bool) -> str | None:
    """Return why two sweeps cannot be compared, or None if they can."""
    if not found.pairs:
        return "not comparable: no cell of one is a cell of the other; give A:axis=value B:axis=value to compare across an axis"
    if not across_hosts and all(pair.unlike for pair in found.pairs):
        reasons = "; ".join(dict.fromkeys(reason for pair in found.pairs for reason in pair.unlike))
        return f"not comparable: {reasons}. --across-hosts compares what does not depend on the host"
    return None


def judge(matched: Matched, *, level: float = LEVEL, least_percent: float = LEAST_PERCENT) -> Comparison:
    """Return every change of every pair. Timings are tested together at `level`; changes under `least_percent` are not regressions."""
    every = len(matched.pairs)
    counts = Counter(mark for pair in matched.pairs for mark in pair.marks)
    marks = [mark if n == every else f"{mark} ({n} of {every} cells)" for mark, n in counts.items()]
    found = Comparison(matched.pairs, [], {}, matched.only_a, matched.only_b, marks)
    for pair in matched.pairs:
        found.changes += [*_status(pair), *_estimates(pair), *_placement(pair)]
        found.changes += [change for spec in shown_in("compare") if (change := _metric_change(spec, pair))]
    _timings(found, level, least_percent)
    return found


def _timings(found: Comparison, level: float, least_percent: float) -> None:
    tested: dict[tuple[object, ...], Difference] = {}
    asked: list[tuple[Pair, str, tuple[object, ...]]] = []
    for pair in found.pairs:
        if why := _untested(pair):
            found.untested[pair.label] = why
        if not (answers_by_timing(pair.a) and answers_by_timing(pair.b)):
            continue
        for name in TIMED:
            if not figures_by_round(pair.a.timings, name) or not figures_by_round(pair.b.timings, name):
                continue
            if pair.unlike:
                if name == "median_ms":
                    found.changes.append(Change("timing not compared", pair.label, "; ".join(pair.unlike)))
                continue
            tasks = (r.realised.get("latency_task", r.cell_key) for r in (pair.a, pair.b))
            key: tuple[object, ...] = (name, *tasks, pair.a.sweep, pair.b.sweep)
            if key not in tested:  # cells that share a timing are one test
                paired = pair.a.sweep == pair.b.sweep
                tested[key] = compare_timings(pair.a.timings, pair.b.timings, name=name, paired=paired, level=level)
            asked.append((pair, name, key))
            found.timings.setdefault(pair.label, {})[name] = tested[key]
    sure = dict(zip(tested, holm([one.p for one in tested.values()], level)))
    found.tests = sum(one.p is not None for one in tested.values())
    for pair, name, key in asked:
        found.changes += _timing(pair, name, tested[key], sure[key], least_percent)
    found.marks += _machine_moved([one for key, one in tested.items() if key[0] == "median_ms"], least_percent)


def _untested(pair: Pair) -> str | None:
    """Return the reason why a cell's headlines cannot be compared, or None if they can."""
    before, after = headline(pair.a), headline(pair.b)
    if not any(one and one.kind == "measured" for one in (before, after)):
        if before is None and after is None:
            shares = [ranking.get_figure(side, ranking.SPEEDS[1]) for side in (pair.a, pair.b)]
            return "no latency on either side" if None in shares else None
        return None if before and after and _shared_chips(pair) else "not estimated on both sides"
    if before and after and before.kind != after.kind:
        return "timed on one side, estimated on the other"
    least = min(len(figures_by_round(side.timings, "median_ms")) for side in (pair.a, pair.b))
    if not least:
        return "not timed on both sides"
    if pair.unlike:
        return "another host or runtime"
    return None if least >= FEWEST else f"{'one timing process' if least == 1 else f'{least} timing processes'} a side"


def _compared_by(pair: Pair) -> str:
    latency = headline(pair.b)
    if latency is None:
        return "the predicted share of the cost on the ANE"
    return "tests" if latency.kind == "measured" else f"the estimates for {name_chip(_shared_chips(pair)[0])}"


def _shared_chips(pair: Pair) -> list[str]:
    """Return the chips that both sides have an estimate for, in the order of the second."""
    before = estimated_chips(pair.a)
    return [chip for chip in estimated_chips(pair.b) if chip in before]


def _timing(pair: Pair, name: str, one: Difference, sure: bool, least_percent: float) -> list[Change]:
    metric, words = TIMED[name]
    text = f"{words}{_figures(pair, metric, 'ms')}, {_evidence(one)}"
    if one.verdict == "untested":
        return [Change("timing untested", pair.label, f"{text}: {one.why}")] if name == "median_ms" else []
    if one.verdict == "same":
        return []
    if sure and abs(one.percent) >= least_percent:
        return [Change(f"loads {one.verdict}" if name == "load_ms" else one.verdict, pair.label, text, name)]
    why = f"under {least_percent:g} %" if sure else "alone it would be significant, among this many tests it is not"
    return [Change("timing differs, but not enough", pair.label, f"{text}; {why}", name)]


def _evidence(one: Difference) -> str:
    text = f"{one.percent:+.1f} %"
    if one.p is None or one.low is None or one.high is None:
        return text
    reach = f"{100 * (one.low - 1):+.1f} to {100 * (one.high - 1):+.1f}"
    of = "" if one.of == "medians" else f" by {one.of}"
    return f"{text}{of} ({reach}), p = {one.p:.2g}, {one.processes[0]} and {one.processes[1]} processes"


def _machine_moved(tested: Sequence[Difference], least_percent: float) -> list[str]:
    """Return a warning if nearly all programs moved in one direction, as the machine explains that better than the programs."""
    percents = [one.percent for one in tested]
    if len(percents) < 5:
        return []
    middle = statistics.median(percents)
    same_way = sum(p * middle > 0 for p in percents)
    if abs(middle) < least_percent or same_way < MOVED_SHARE * len(percents):
        return []
    return [
        f"{same_way} of {len(percents)} timings moved the same way, {middle:+.1f} % in the middle: that looks like the "
        "machine (heat, load, power, an update) rather than the programs; time both sides again in one sweep"
    ]


def _status(pair: Pair) -> list[Change]:
    was, now = pair.a, pair.b
    if was.status == now.status or (was.status in FINE and now.status in FINE):
        return []
    bucket = "stopped working" if was.status in FINE else "works again" if now.status in FINE else "fails otherwise"
    return [Change(bucket, pair.label, f"{_ended(was)} -> {_ended(now)}")]


def _ended(record: Record) -> str:
    return record.status.value + (f" ({record.reason})" if record.reason and record.status not in FINE else "")


def _estimates(pair: Pair) -> list[Change]:
    """Return the changes of estimated latencies; all chips that became slower make one change."""
    was, now = ({chip: estimate(side, chip) for chip in estimated_chips(side)} for side in (pair.a, pair.b))
    known = [{entry.chip for entry in record.placed("predicted")} for record in (pair.a, pair.b)]
    texts: dict[str, list[str]] = {}
    for chip in dict.fromkeys([*was, *now]):
        a, b = (found and found.ms for found in (was.get(chip), now.get(chip)))
        if (a is None or b is None) and all(chip in chips for chips in known):
            texts.setdefault("estimated on one side only", []).append(f"{chip}: {_number(a)} -> {_number(b)} ms")
        elif a and b and abs(b / a - 1) >= ESTIMATE_SHARE:
            bucket = "estimated slower" if b > a else "estimated faster"
            texts.setdefault(bucket, []).append(f"{chip}: {_number(a)} -> {_number(b)} ms ({100 * (b / a - 1):+.1f} %)")
    before, after = ({item.sha256 for item in record.artifacts} for record in (pair.a, pair.b))
    is_same = before and before == after and None not in before  # both sides are known to have run the same files
    why = "; the package is the same, so the model of cost is another" if is_same else ""
    return [Change(bucket, pair.label, f"estimate for {', '.join(said)}{why}") for bucket, said in texts.items()]


def _placement(pair: Pair) -> list[Change]:
    before = {_place_key(entry): entry for entry in pair.a.placement}
    changes = []
    for entry in pair.b.placement:
        was, now = _ane_share(before.get(_place_key(entry))), _ane_share(entry)
        if was is None or now is None or abs(was - now) < 1e-9:
            continue
        text = f"{entry.kind} for {entry.chip}: {100 * was:.0f} -> {100 * now:.0f} % of the ops on the ANE"
        bucket = "placement moved"
        if (was > MAINLY) != (now > MAINLY):
            bucket = "onto the ANE" if now > MAINLY else "off the ANE"
            text += "" if now > MAINLY else ", no longer mainly on the ANE"
        changes.append(Change(bucket, pair.label, text))
    return changes


def _place_key(entry: Placement) -> tuple[object, ...]:
    return entry.kind, entry.chip, entry.compute_units, entry.function


def _ane_share(entry: Placement | None) -> float | None:
    """Return the ANE share rounded to a whole per cent as printed, so that only visible changes count; None without ops."""
    return round(entry.ops.share("ane"), 2) if entry is not None and entry.ops.total else None


def _metric_change(spec: MetricSpec, pair: Pair) -> Change | None:
    was, now = (side.read(spec.name, spec.kind) for side in (pair.a, pair.b))
    if was is None or now is None:
        return None
    step = abs(min(now, spec.ceiling) - min(was, spec.ceiling))
    if not (step > 0 and step >= max(spec.least_change, spec.least_share * abs(was))):
        return None
    bucket = spec.improved if spec.better * (now - was) > 0 else spec.worse
    unit = "" if spec.unit == "1" else spec.unit
    label = "" if spec.name in RANKED else f"{spec.short}: "  # the bucket says what these are
    return Change(bucket, pair.label, f"{label}{_figures(pair, spec.name, unit)}".rstrip())


def _figures(pair: Pair, name: str, unit: str) -> str:
    was, now = pair.a.value(name), pair.b.value(name)
    return f"{_number(was)} -> {_number(now)} {unit}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}" if value >= 1e5 else f"{value:.4g}"
