"""The rows of the scorecard: each published figure that can be held against a prediction, and ours.

kind        published                                        ours
latency     milliseconds of a net (published/latency.csv)    the estimate; hit: inside its band
choice      the unit of most ops under compute_units=all     the unit by the estimates' ratio
op_counts   ops by unit (published/op_counts.csv)            as last counted by tests/bench/opcounts.py; hit: share on the ANE within CLOSE
support     ops that an M4's compute plan allows on the ANE  the rules of placement
unit        ops by the unit that this plan prefers           the cheapest path; a tie is a hit
figure      every other figure of data/published.csv         nothing: `why` says the reason

part says how far ours knew the figure: held_out (its table or row had no part in the terms), seen (rules were written, or
differences explained, with the figure in sight), aside (no program of these terms), none (nothing of ours).
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields

from ane_sweep.placement import chips, legality
from ane_sweep.placement.types import Ops
from ane_sweep.results import published
from tests.bench import _kept, _placed
from tests.proof.placement import choices, fit, score, score_text, tables, terms

VERSION = 2
CLOSE = 0.05  # of all ops
OUTSIDE = "no op list of this model or of its unit is written (tests/proof/placement/nets.py)"
NOT_PREDICTED = {
    "load_ms": "load times are not predicted", "compile_ms": "compile times are not predicted",
    "psnr_db": "accuracy is computed from weights, not predicted", "size_mb": "sizes are measured, not predicted",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One published figure and ours; `published` and `ours` are texts in the words of `kind`."""

    version: int
    kind: str
    source: str
    chip: str
    compute_units: str
    chunks: str
    subject: str
    published: str
    ours: str
    part: str
    result: str
    why: str


COLUMNS = tuple(field.name for field in fields(Row))


def list_rows() -> list[Row]:
    """Return all rows, kind by kind. About 15 s."""
    return [*_latencies(), *_choices(), *_op_counts(), *_plan(), *_figures()]


def to_texts(row: Row) -> tuple[str, ...]:
    return tuple(str(value) for value in astuple(row))


def _result(is_right: bool) -> str:
    return "hit" if is_right else "miss"


def _latencies() -> Iterator[Row]:
    found = {id(one.row): one for one in tables.said()}
    for row in terms.rows():
        one = found.get(id(row))
        ours = one.ours_ms if one else None
        result = "none" if one is None or ours is None else _result(bool(one.inside))
        yield Row(
            VERSION, "latency", row.table, row.chip.chip, row.compute_units, str(row.chunks), row.net, f"{row.ms:.6g}",
            "" if ours is None else f"{ours:.6g}", "aside" if one is None else "held_out", result,
            row.aside if one is None else one.why_not or "",
        )  # fmt: skip


def _choices() -> Iterator[Row]:
    asked = choices.asked()
    for row in choices.rows():
        known = [other for other in asked if other.ratio is not None and other is not row]
        unit, result, why = "", "none", ""
        if row not in asked:
            why = f"compute_units={row.compute_units} leaves no choice between GPU and ANE"
        elif row.ratio is None:
            why = "one of the two units has no estimate"
        else:
            unit = "gpu" if row.ratio >= choices.turn(known) else "ane"
            result = _result(unit == row.unit)
        part = "held_out" if unit else "none"
        yield Row(
            VERSION, "choice", row.table, row.chip, row.compute_units, "1", row.net, row.unit, unit, part, result, why
        )


def _op_counts() -> Iterator[Row]:
    kept = {row["what"]: row for row in _kept.entries("opcounts")[-1]["rows"]}
    with open(_placed.PUBLISHED, newline="", encoding="utf-8") as file:
        for one in csv.DictReader(file):
            what = f"{one['model']}, {one['variant']}"
            theirs = score_text.published(one)
            row = next((kept[name] for name in kept if name == f"{what}, {one['chip']}, {one['compute_units']}"
                        and kept[name].get("theirs") == theirs), None)  # fmt: skip
            ours = str(row["ours"]) if row and row.get("ours", "-") != "-" else ""
            why = str(row.get("why", "")) if row else _placed.OTHERS
            can_tell = bool(ours) and one["compute_units"] != "all"
            result = _result(abs(_ane_share(ours) - _ane_share(theirs)) <= CLOSE) if can_tell else "none"
            yield Row(
                VERSION, "op_counts", one["source"], one["chip"], one["compute_units"], "1", what, theirs, ours,
                "seen" if ours else "none", result, why,
            )  # fmt: skip


def _ane_share(text: str) -> float:
    """Return the share of ops on the ANE of a text as `8 CPU, 1315 ANE`."""
    counts = {word: int(count) for count, word in (part.split() for part in text.split(", ")) if count.isdigit()}
    return counts.get("ANE", 0) / (sum(counts.values()) or 1)


def _plan() -> Iterator[Row]:
    """Yield a row for each program and answer of the M4's plan: its ops that are planned alike are one figure."""
    chip, rates = chips.get("m4"), score.left_out_rates(fit.observations())
    for context, case, rows, sites in score.plans():
        allowed = [row["ane_supported"] for row in rows]
        taken = [int("ane" in legality.judge(site, chip).supported) for site in sites]
        known = [(said == "1", ours == 1) for said, ours in zip(allowed, taken, strict=True) if said]
        if known:
            why = score.EXPLAINED.get(("legality", case), "")
            yield _planned("support", context, case, (_allow(said for said, _ in known), _allow(ours for _, ours in known)),
                           all(said == ours for said, ours in known), why)  # fmt: skip
        if not all(row["preferred"] and row["cost_weight"] for row in rows):
            continue
        units = score.choose_units(sites, chip, rates(case))
        reported = [row["preferred"].lower() for row in rows]
        agree = all(row["tie"] == "1" or a == b for row, a, b in zip(rows, reported, units, strict=True))
        why = "" if agree else score.EXPLAINED.get(("placement", case), "the estimate is off")
        yield _planned("unit", context, case, (_count(reported), _count(units)), agree, why)


def _planned(kind: str, context: str, case: str, sides: tuple[str, str], is_right: bool, why: str) -> Row:
    # Rules were written with this plan in sight; for `unit` the rates were fitted without the case.
    source = "751K study, M4 compute plan"
    theirs, ours = sides
    return Row(
        VERSION, kind, source, "m4", "all", "1", f"{context}/{case}", theirs, ours, "seen", _result(is_right), why
    )  # fmt: skip


def _allow(answers: Iterable[bool]) -> str:
    found = list(answers)
    return f"{sum(found)} of {len(found)} ops"


def _count(units: Iterable[str]) -> str:
    counts = Counter(units)
    ops = Ops(counts["cpu"], counts["gpu"], counts["ane"], counts.total())
    return f"{ops.cpu} CPU, {ops.gpu} GPU, {ops.ane} ANE"


def _figures() -> Iterator[Row]:
    """Yield the figures of data/published.csv that no other kind has."""
    times = {(row.chip.chip, row.ms) for row in terms.rows()}
    for row in published.rows():
        for name, value in row.figures.items():
            if name.startswith("ops_") or (name == "predict_ms" and (row["chip"], value) in times):
                continue  # op_counts, latency
            why = NOT_PREDICTED.get(name) or row["unmatched"] or ("" if row["chip"] else "no chip is named") or OUTSIDE
            yield Row(
                VERSION, "figure", row["source"], row["chip"], row["compute_units"].lower(), row["chunks"],
                f"{row['model']}, {row['variant']}: {name}", published.figure_text(value), "", "none", "none", why,
            )  # fmt: skip
