"""The matching of two sweeps' cells by request, with the reasons why two measurements may not be compared."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.record import Record, Status, as_typed, flat_cell, varying_names
from ane_sweep.compare.sides import Side
from ane_sweep.errors import ConfigError
from ane_sweep.results.headline import answers_by_timing
from ane_sweep.results.pool import in_vain

HOST = ("system", "machine", "chip", "cores", "worker", "stand_in")  # other values: another machine
OS = ("os_version", "os_build")
_FOLLOWS = {"model": ("model_options.", "family", "size"), "precision": ("precision_options.",)}  # axis -> what it sets
_HOW = ("latency.", "limits.", "allow_pickle", "fault")  # how a cell was run, not what it is


@dataclass
class Pair:
    """One request on both sides. `unlike` is the reason why latencies may not be compared; `marks` are other differences."""

    label: str
    a: Record
    b: Record
    unlike: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)


@dataclass
class Matched:
    pairs: list[Pair]
    only_a: list[str]
    only_b: list[str]


def match(a: Side, b: Side) -> Matched:
    """Match the cells of two sides by request, ignoring axes that a selector fixed. Raises ConfigError if that makes
    two cells of one side equal.
    """
    sides = [[record for record in side.records if record.status is not Status.SKIPPED] for side in (a, b)]
    (first, second), label = requests(sides, {*a.chosen, *b.chosen})
    for side, found in ((a, first), (b, second)):
        if any(len(records) > 1 for records in found.values()):
            raise ConfigError(
                f"{side.word}: two of its cells are one request for this comparison; name the one that is meant, as in "
                f"{side.word}:axis=value"
            )
    pairs = [_pair(label[one], first[one][0], second[one][0]) for one in first if one in second]
    only_a, only_b = (
        [label[one] for one in mine if one not in theirs] for mine, theirs in ((first, second), (second, first))
    )
    return Matched(pairs, only_a, only_b)


def requests(
    sides: Sequence[Sequence[Record]], chosen: Collection[str] = ()
) -> tuple[list[dict[str, list[Record]]], dict[str, str]]:
    """Return, for each side, {request: its records}; and {request: its unique label}.

    A request has the axes and options that all sides know (a newer version may know more), except those about how a
    cell is run (_HOW). If a side has several cells with equal requests, the latter are added, and then the axes that
    only some sides know, so that cells of one sweep always differ. A request never has the `chosen` axes and the
    options that they set.
    """
    set_by = tuple(prefix for axis in chosen for prefix in _FOLLOWS.get(axis, ()))
    flat = [[flat_cell(record) for record in side] for side in sides]
    known = [{n for cell in side for n in cell if n not in chosen and not n.startswith(set_by)} for side in flat]
    shared = set.intersection(*known)
    levels = [{name for name in shared if not name.startswith(_HOW)}, shared, set.union(*known)]
    left = [[_Asked(record, cell) for record, cell in zip(*both)] for both in zip(sides, flat)]
    found: list[dict[str, list[Record]]] = [{} for _ in sides]
    labels: dict[str, str] = {}
    for level, before in zip(levels, [set(), *levels]):
        _tell_apart([one for side in left for one in side], level, level - before)
        alike = {key for side in left for key, n in Counter(one.key for one in side).items() if n > 1}
        for requests, side in zip(found, left):
            for one in side:
                if one.key not in alike or level is levels[-1]:
                    requests.setdefault(one.key, []).append(one.record)
                    labels[one.key] = one.label
        left = [[one for one in side if one.key in alike] for side in left]
    return found, labels


@dataclass
class _Asked:
    """A record on its way to a request: its key by the names used so far, and the words that distinguish it."""

    record: Record
    cell: dict[str, object]
    key: str = ""
    label: str = ""


def _tell_apart(cells: Sequence[_Asked], names: set[str], new: set[str]) -> None:
    """Key every cell by `names`, and add the `new` names that vary to its label."""
    for one in cells:
        one.key = json.dumps([[name, one.cell.get(name)] for name in sorted(names)], sort_keys=True, default=str)
    different = {one.key: {name: value for name, value in one.cell.items() if name in new} for one in cells}
    varying = [name for name in varying_names(list(different.values())) if name != "model"]
    for one in cells:
        words = [f"{as_typed(name)}={format_value(one.cell[name])}" for name in varying if name in one.cell]
        one.label = " ".join([one.label or str(one.cell["model"] if "model" in names else "cell"), *words])


def _pair(label: str, a: Record, b: Record) -> Pair:
    unlike = _changed("host", machine(a), machine(b))
    before, after = a.realised.get("runtime"), b.realised.get("runtime")
    if before and after and before != after:
        unlike.append(f"ran on {before}, runs on {after}")
    if answers_by_timing(a) or answers_by_timing(b):
        return Pair(label, a, b, unlike, marks(a, b))
    return Pair(label, a, b, [], [*unlike, *marks(a, b)])  # an estimate is the same on every host


def machine(record: Record) -> dict[str, object]:
    """Return the fields of HOST in which two machines differ; for cores, only the kind that differs."""
    parts: dict[str, object] = {}
    for name in HOST:
        value = record.host.get(name)
        parts |= {f"{name}.{part}": one for part, one in value.items()} if isinstance(value, dict) else {name: value}
    return parts


def marks(a: Record, b: Record) -> list[str]:
    """Return the differences between the circumstances of two records of one request, which may explain their figures."""
    how = [{n: v for n, v in flat_cell(r).items() if n.startswith(_HOW)} for r in (a, b)]
    timed = {side: one for side, one in (("before", a), ("now", b)) if answers_by_timing(one)}
    busy = {side: gate for side, one in timed.items() if (gate := in_vain(one.timings))}
    return [
        *_changed("os", {n: a.host.get(n) for n in OS}, {n: b.host.get(n) for n in OS}),
        *_changed("toolchain", a.toolchain, b.toolchain),
        *_changed("power", {"source": a.host.get("power")}, {"source": b.host.get("power")}),
        *_changed("weights", {"digest": a.weights.digest}, {"digest": b.weights.digest}),
        *_changed("how it was run", *how),
        # a machine that was busy or hot on one side only looks like a difference between programs
        *(f"machine: {side} {gate}" for side, gate in busy.items() if len(busy) == 1),
    ]


def _changed(what: str, a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    return [
        f"{what}: {name} was {_say(a.get(name))}, is {_say(b.get(name))}"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]


def _say(value: object) -> str:
    text = "unknown" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:16] + "..."
