"""Which cells of two sweeps are the same request, and whether what was measured may be compared: like with like."""

import json
from dataclasses import dataclass, field
from typing import Any

from ane_sweep.compare.sides import Side
from ane_sweep.errors import ConfigError
from ane_sweep.record import Record, Status, flat_cell

HOST = ("system", "machine", "chip", "cores", "stand_in")  # other values: another machine
OS = ("os_version", "os_build")
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
    names = _names(a.records) & _names(b.records) - {*a.chosen, *b.chosen}
    names = {name for name in names if not name.startswith(_HOW)}
    if any(axis == "model" for axis in (*a.chosen, *b.chosen)):
        names = {name for name in names if not name.startswith(("model_options.", "family", "size"))}
    if any(axis == "precision" for axis in (*a.chosen, *b.chosen)):
        names = {name for name in names if not name.startswith("precision_options.")}
    first, second = _by_request(a, names), _by_request(b, names)
    labels = _labels([*first.values(), *second.values()], names)
    pairs = [_pair(labels[key], first[key], second[key]) for key in first if key in second]
    return Matched(
        pairs,
        [labels[key] for key in first if key not in second],
        [labels[key] for key in second if key not in first],
    )


def _names(records: list[Record]) -> set[str]:
    return {name for record in records for name in flat_cell(record)}


def _by_request(side: Side, names: set[str]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for record in side.records:
        if record.status is Status.SKIPPED:
            continue  # the budget was spent before its turn: nothing to compare
        key = _key(record, names)
        if key in found:
            raise ConfigError(
                f"{side.word}: two of its cells are one request for this comparison; name the one that is meant, as in "
                f"{side.word}:axis=value"
            )
        found[key] = record
    return found


def _key(record: Record, names: set[str]) -> str:
    cell = flat_cell(record)
    return json.dumps([[name, cell.get(name)] for name in sorted(names)], sort_keys=True, default=str)


def _labels(records: list[Record], names: set[str]) -> dict[str, str]:
    """`gpt2 chunks=2`: the model and the plain axes that tell these cells apart."""
    cells = {_key(record, names): flat_cell(record) for record in records}
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
    pair.marks += _changed("os", {n: a.host.get(n) for n in OS}, {n: b.host.get(n) for n in OS})
    pair.marks += _changed("toolchain", a.toolchain, b.toolchain)
    pair.marks += _changed("power", {"source": a.host.get("power")}, {"source": b.host.get("power")})
    pair.marks += _changed("weights", {"digest": a.weights.get("digest")}, {"digest": b.weights.get("digest")})
    how = [{n: v for n, v in flat_cell(r).items() if n.startswith("latency.")} for r in (a, b)]
    pair.marks += _changed("timing policy", *how)
    return pair


def _changed(what: str, a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [
        f"{what}: {name} was {_say(a.get(name))}, is {_say(b.get(name))}"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]


def _say(value: Any) -> str:
    text = "unknown" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:16] + "..."
