"""Which cells of two sweeps are the same request, and whether what was measured may be compared: like with like."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from ane_sweep.compare.sides import Side
from ane_sweep.errors import ConfigError
from ane_sweep.record import Record, Status, flat_cell

HOST = ("system", "machine", "chip", "cores", "stand_in")  # other values: another machine
OS = ("os_version", "os_build")
_FOLLOWS = {"model": ("model_options.", "family", "size"), "precision": ("precision_options.",)}  # axis -> what it sets
_HOW = ("latency.", "limits.", "allow_pickle", "fault")  # how a cell was run, not what it is


@dataclass
class Pair:
    """One request on both sides. `unlike` says why latencies may not be compared; `marks` what else differs."""

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
    """Cells by their request: every axis and option that both sides know, but for those that a selector fixed.

    An axis that came with a newer version is on one side only and is left out. Raises ConfigError where two cells of
    one side then are the same.
    """
    known = asked(names(a.records) & names(b.records), {*a.chosen, *b.chosen})
    first, second = _by_request(a, known), _by_request(b, known)
    label = labels([*first.values(), *second.values()], known)
    pairs = [_pair(label[one], first[one], second[one]) for one in first if one in second]
    return Matched(
        pairs,
        [label[one] for one in first if one not in second],
        [label[one] for one in second if one not in first],
    )


def asked(known: set[str], chosen: Collection[str] = ()) -> set[str]:
    """Of the names of a request, those that say what a cell is: not how it was run, and not what a selector chose."""
    gone = [*_HOW, *(prefix for axis in chosen for prefix in _FOLLOWS.get(axis, ()))]
    return {name for name in known - set(chosen) if not name.startswith(tuple(gone))}


def names(records: Iterable[Record]) -> set[str]:
    return {name for record in records for name in flat_cell(record)}


def _by_request(side: Side, names: set[str]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for record in side.records:
        if record.status is Status.SKIPPED:
            continue  # the budget was spent before its turn: nothing to compare
        request = key(record, names)
        if request in found:
            raise ConfigError(
                f"{side.word}: two of its cells are one request for this comparison; name the one that is meant, as in "
                f"{side.word}:axis=value"
            )
        found[request] = record
    return found


def key(record: Record, names: set[str]) -> str:
    cell = flat_cell(record)
    return json.dumps([[name, cell.get(name)] for name in sorted(names)], sort_keys=True, default=str)


def labels(records: list[Record], names: set[str]) -> dict[str, str]:
    """`gpt2 chunks=2`: the model and the plain axes that tell these cells apart."""
    cells = {key(record, names): flat_cell(record) for record in records}
    plain = [n for n in flat_cell(records[0]) if n in names and "." not in n and n not in ("model", "family", "size")]
    varying = [n for n in plain if len({json.dumps(cell.get(n), default=str) for cell in cells.values()}) > 1]
    return {
        key: " ".join([str(cell.get("model", "cell")), *(f"{n}={cell.get(n)}" for n in varying)])
        for key, cell in cells.items()
    }


def _pair(label: str, a: Record, b: Record) -> Pair:
    pair = Pair(label, a, b)
    for name in HOST:
        if a.host.get(name) != b.host.get(name):
            pair.unlike.append(f"host: {name} was {_say(a.host.get(name))}, is {_say(b.host.get(name))}")
    before, after = a.realised.get("runtime"), b.realised.get("runtime")
    if before and after and before != after:
        pair.unlike.append(f"ran on {before}, runs on {after}")
    pair.marks = marks(a, b)
    return pair


def marks(a: Record, b: Record) -> list[str]:
    """What differs around two records of one request, and may be why they differ."""
    how = [{n: v for n, v in flat_cell(r).items() if n.startswith("latency.")} for r in (a, b)]
    return [
        *_changed("os", {n: a.host.get(n) for n in OS}, {n: b.host.get(n) for n in OS}),
        *_changed("toolchain", a.toolchain, b.toolchain),
        *_changed("power", {"source": a.host.get("power")}, {"source": b.host.get("power")}),
        *_changed("weights", {"digest": a.weights.get("digest")}, {"digest": b.weights.get("digest")}),
        *_changed("timing policy", *how),
    ]


def _changed(what: str, a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [
        f"{what}: {name} was {_say(a.get(name))}, is {_say(b.get(name))}"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]


def _say(value: Any) -> str:
    text = "unknown" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:16] + "..."
