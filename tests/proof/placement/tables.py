"""Does the estimate order what people measured? Each published table beside what was said of it before and beside trivial answers.

A table is one source's figures of one day on one unit. Ours is said by terms that the whole table had no part in (terms.py), and its
band by the other tables' rows. `before`: the roofline that was here until November 2026. FLOP and bytes are no times, so they have
an order alone.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ane_sweep.placement.work import Work
from ane_sweep.stats.ranks import spearman
from tests.proof.placement import terms
from tests.proof.placement.terms import Row

_FEWEST = 3  # rows that have an order worth a number
BEFORE_BAND = (0.6, 2.8)


@dataclass(frozen=True)
class Said:
    """A row with what was said of it; None: not estimated."""

    row: Row
    ours_ms: float | None
    before_ms: float | None
    inside: bool | None
    inside_before: bool | None
    why_not: str | None = None


@dataclass(frozen=True)
class Table:
    """`orders`: Spearman's rho by who says it, None where too few rows differ. Errors: median of |said / published - 1|."""

    table: str
    unit: str
    rows: int
    not_estimated: int
    orders: dict[str, float | None]
    error: float | None
    error_before: float | None
    inside: int
    inside_before: int | None


@dataclass(frozen=True)
class Pair:
    """One model in both forms on the same units of a chip. `said`: right, wrong, or the reason why one has no estimate."""

    table: str
    chip: str
    compute_units: str
    published: tuple[float, float]  # original, split_einsum
    ours: tuple[float | None, float | None]
    said: str


def said() -> list[Said]:
    """Every row that is not put aside."""
    found = []
    for unit in ("ane", "gpu", "cpu"):
        ours = terms.held_out(unit)
        bands = {table: terms.band(unit, without=table) for table in dict.fromkeys(row.table for row in ours)}
        for row in (row for row in terms.rows() if row.unit == unit and not row.aside):
            ms, before = ours.get(row), roofline_ms(row)
            inside = None if ms is None else bands[row.table]["low"] <= row.ms / ms <= bands[row.table]["high"]
            inside_before = None if before is None else BEFORE_BAND[0] <= row.ms / before <= BEFORE_BAND[1]
            why = None if ms is not None else row.withheld or f"{row.chip.chip}: no figures of this unit"
            found.append(Said(row, ms, before, inside, inside_before, why))
    return found


def roofline_ms(row: Row) -> float | None:
    """What was estimated before: dispatch, the larger of FLOP and bytes, 1.6 ms a chunk; of the Neural Engine alone."""
    if row.unit != "ane":
        return None
    chip, load = row.chip, row.works[0].ane
    streamed = load.weights if load.weights > chip.resident_bytes else 0.0
    each = chip.dispatch_ms + max(load.flop / (chip.fp16_tflops * 1e9), streamed / (chip.weight_gbs * 1e6))
    return row.chunks * each + 1.6 * (row.chunks - 1)


def tables(found: Sequence[Said]) -> list[Table]:
    groups: dict[tuple[str, str], list[Said]] = defaultdict(list)
    for one in found:
        groups[one.row.table, one.row.unit].append(one)
    return [_table(name, unit, rows) for (name, unit), rows in groups.items()]


def by_unit(found: Sequence[Said]) -> list[Table]:
    groups: dict[str, list[Said]] = defaultdict(list)
    for one in found:
        groups[one.row.unit].append(one)
    return [_table("all tables", unit, rows) for unit, rows in groups.items()]


def _table(name: str, unit: str, rows: Sequence[Said]) -> Table:
    told = [one for one in rows if one.ours_ms is not None]
    published = [one.row.ms for one in told]
    loads = [_whole(one.row) for one in told]
    others = {
        "ours": [one.ours_ms or 0.0 for one in told],
        "before": [one.before_ms or 0.0 for one in told] if unit == "ane" else None,
        "flop": [getattr(load, unit).flop for load in loads],
        "bytes": [getattr(load, unit).weights for load in loads],
    }
    before = [one for one in told if one.before_ms is not None]
    return Table(
        name, unit, len(rows), len(rows) - len(told),
        {who: _order(published, values) if values is not None else None for who, values in others.items()},
        _median([abs((one.ours_ms or 0.0) / one.row.ms - 1) for one in told]),
        _median([abs((one.before_ms or 0.0) / one.row.ms - 1) for one in before]),
        sum(one.inside is True for one in told), sum(one.inside_before is True for one in before) if before else None,
    )  # fmt: skip


def _whole(row: Row) -> Work:
    return terms.whole(row.net, row.unit, row.chip.family)


def _order(published: Sequence[float], values: Sequence[float]) -> float | None:
    return spearman(published, values) if len(set(published)) >= _FEWEST and len(set(values)) > 1 else None


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def pairs(found: Sequence[Said]) -> list[Pair]:
    """Every published original beside the split_einsum of the same model, table, chip and units, those put aside as well."""
    ours = {one.row: one.ours_ms for one in found}
    groups: dict[tuple[str, ...], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in terms.rows():
        words = [word for word in row.net.split() if word.partition("=")[0] not in ("form", "head", "bits", "mask")]
        form = "split_einsum" if "form=split_einsum" in row.net else "original"
        groups[row.table, row.chip.chip, row.compute_units, *words][form].append(row)
    return [
        _pair(one, other, ours)
        for forms in groups.values()
        for one in forms["original"]
        for other in forms["split_einsum"]
    ]


def _pair(one: Row, other: Row, ours: dict[Row, float | None]) -> Pair:
    times = tuple(ours.get(row) if row in ours else _in_sample(row) for row in (one, other))
    if None in times:
        why = next((row.withheld for row in (one, other) if row.withheld), None)
        return _made(one, other, times, why or f"{one.chip.chip}: no figures of this unit")
    return _made(one, other, times, "right" if (times[0] > times[1]) == (one.ms > other.ms) else "wrong")  # type: ignore[operator]


def _made(one: Row, other: Row, times: tuple[float | None, ...], words: str) -> Pair:
    return Pair(one.table, one.chip.chip, one.compute_units, (one.ms, other.ms), (times[0], times[1]), words)


def _in_sample(row: Row) -> float | None:
    """Of a row that was put aside: it had no part in any fit."""
    if row.withheld or row not in set(terms.rows()):
        return None
    found = terms.used(row.unit)
    return terms.said_ms(row, terms.everything(row.unit)) if row.own in {one.own for one in found} else None
