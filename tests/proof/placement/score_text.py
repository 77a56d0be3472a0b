"""Scores as text: what `python -m tests.proof.placement.score` prints."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

from ane_sweep import tables
from ane_sweep.placement.ordering import find_word


def text(scores: dict[str, Any]) -> str:
    return "\n".join(
        [
            *_legality(scores),
            *_placement("Placement, rates fitted to all cases", scores["placement"]),
            *_placement("Placement, each case planned with rates fitted without it", scores["placement_left_out"]),
            *_estimator(scores),
            *_latency(scores),
            *_op_counts(scores["op_counts"]),
        ]
    )


def _legality(scores: dict[str, Any]) -> Iterator[str]:
    found, compiled = scores["legality"], scores["compile"]
    total = found["accepted"] + found["refused"]
    yield "Legality on the M4 rows (seen when the rules were written)"
    yield f"  accepted: {found['accepted_right']} of {found['accepted']} right (always-ANE: all)"
    yield f"  refused:  {found['refused_right']} of {found['refused']} right (always-ANE: 0)"
    yield f"  together: {(found['accepted_right'] + found['refused_right']) / total:.2%} (always-ANE: {found['accepted'] / total:.2%})"
    yield from (f"  miss: {miss}" for miss in found["misses"])
    yield f"  M4 ANE compiler: {compiled['agreed']} of {compiled['cases']} cases agree"
    yield from (f"  differs: {line}" for line in compiled["differences"])


def _placement(title: str, found: dict[str, Any]) -> Iterator[str]:
    rows = found["rows"]
    yield f"\n{title}"
    yield (
        f"  {found['right']} of {rows} ops exact, {found['ties']} more at equal cost: "
        f"{(found['right'] + found['ties']) / rows:.2%} (always-ANE {found['always_ane_right'] / rows:.2%}, "
        f"always-CPU {found['always_cpu_right'] / rows:.2%})"
    )
    weak = {kind: pair for kind, pair in found["by_class"].items() if pair[0] < pair[1]}
    perfect = len(found["by_class"]) - len(weak)
    yield f"  by op type: {perfect} of {len(found['by_class'])} types without a miss" + (
        "" if not weak else "; the others:"
    )
    yield from (f"    {kind}: {right} of {count}" for kind, (right, count) in weak.items())
    yield from (f"  miss: {miss}" for miss in found["misses"])


def _estimator(scores: dict[str, Any]) -> Iterator[str]:
    yield "\nEstimated ms against the planner's own, relative error: each case left out (in brackets: fitted to all)"
    fitted = {(entry["op_class"], entry["unit"]): entry for entry in scores["estimator_fitted"]}
    yield _table(
        ("class", "unit", "rows", "cases", "median", "(fitted)", "worst", "(fitted)", "case"),
        (
            (
                entry["op_class"], entry["unit"], str(entry["count"]), str(entry["cases"]),
                f"{entry['median']:.2%}", f"({known['median']:.2%})",
                f"{entry['largest']:.2%}", f"({known['largest']:.2%})", entry["worst_case"],
            )
            for entry in scores["estimator"]
            for known in [fitted[entry["op_class"], entry["unit"]]]
        ),
        range(2, 8),
    )  # fmt: skip


def _latency(scores: dict[str, Any]) -> Iterator[str]:
    yield (
        "\nLatency against published tables: each table estimated by terms that it had no part in\n"
        "(rho: Spearman, ours / before / FLOP / bytes; error: median of |estimated / published - 1|, ours / before; inside the band)"
    )
    rows = (
        (
            entry["table"], entry["unit"], str(entry["rows"]), str(entry["not_estimated"] or ""),
            *(_number(entry["orders"][who]) for who in ("ours", "before", "flop", "bytes")),
            _percent(entry["error"]), _percent(entry["error_before"]),
            str(entry["inside"]), "-" if entry["inside_before"] is None else str(entry["inside_before"]),
        )
        for entry in scores["latency"]
    )  # fmt: skip
    heads = (
        "table",
        "unit",
        "rows",
        "withheld",
        "rho",
        "before",
        "FLOP",
        "bytes",
        "error",
        "before",
        "inside",
        "before",
    )
    yield _table(heads, rows, range(2, 12))
    yield from _pairs(scores["pairs"])
    yield from _choice(scores["choice"])
    yield from _ordering(scores["ordering"], scores["ordering_left_out"])


def _pairs(entries: list[dict[str, Any]]) -> Iterator[str]:
    right = sum(entry["said"] == "right" for entry in entries)
    wrong = sum(entry["said"] == "wrong" for entry in entries)
    yield (
        f"\noriginal against split_einsum, {len(entries)} published pairs: {right} ordered right, {wrong} wrong, "
        f"{len(entries) - right - wrong} not estimated (ms, original / split_einsum)"
    )
    rows = (
        (
            entry["table"], entry["chip"], entry["compute_units"], " / ".join(f"{ms:g}" for ms in entry["published"]),
            " / ".join("-" if ms is None else f"{ms:.3g}" for ms in entry["ours"]),
            entry["said"] if entry["said"] in ("right", "wrong") else "not estimated",
        )
        for entry in entries
    )  # fmt: skip
    yield _table(("table", "chip", "units", "published", "estimated", "order"), rows)
    reasons = {entry["said"].partition(": ")[2] for entry in entries if entry["said"] not in ("right", "wrong")}
    yield from (f"  not estimated: {reason}" for reason in sorted(reasons))


def _choice(found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"\nNeural Engine or GPU, all units allowed: {found['rows']} published programs, {found['not_predicted']} more not predicted "
        f"(no figures); the GPU from {found['ratio']:.2f} times as fast on"
    )
    yield (
        f"  right: {found['right']} fitted to all, {found['left_out']} with each left out, {found['chip_left_out']} with each chip "
        f"left out; always the Neural Engine {found['always_ane']}, the more frequent unit {found['majority']}"
    )


def _ordering(rules: dict[str, Any], left_out: dict[str, tuple[int, int]]) -> Iterator[str]:
    yield (
        "\nPairs of one table and chip, in the order of held-out estimates, by the ratio of these (lower: 95 % bound of the\n"
        "share that is right; by table: each table with one weight)"
    )
    rows = (
        (
            kind, f"{one['start']:g} to {one['end']:g}" if one["end"] else f"{one['start']:g} and more",
            *(str(one[name]) for name in ("pairs", "right", "wrong", "tables")), _number(one["lower"]), _number(one["by_table"]),
            find_word(rule, one["start"]),
        )
        for kind, rule in rules.items() for one in rule["counts"]
    )  # fmt: skip
    heads = ("differ in", "ratio", "pairs", "right", "wrong", "tables", "lower", "by table", "said")
    yield _table(heads, rows, range(2, 8))
    counts = ", ".join(f"{word} {right} of {count}" for word, (right, count) in sorted(left_out.items()))
    yield f"  right, with each table left out of the counts that judge its pairs: {counts}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _op_counts(entries: list[dict[str, Any]]) -> Iterator[str]:
    yield "\nOp counts: published beside predicted (a package is given as KEY=PATH)"
    rows = []
    for entry in entries:
        ops = entry["predicted"]
        predicted = f"{ops['cpu']} CPU / {ops['ane']} ANE of {ops['total']}" if ops else "-"
        rows.append((entry["key"], entry["chip"], published(entry), predicted, entry["note"]))
    yield _table(("key", "chip", "published", "predicted", "note"), rows)


def published(entry: Mapping[str, str]) -> str:
    """A published count as it was published: by unit, in all, or in shares."""
    told = [f"{entry[f'ops_{unit}']} {unit.upper()}" for unit in ("cpu", "gpu", "ane") if entry[f"ops_{unit}"]]
    if entry["shares"]:
        told.append(f"{entry['shares']} of {entry['ops_total']} ops" if entry["ops_total"] else entry["shares"])
    elif entry["ops_total"] and len(told) < 2:
        told.append(f"{entry['ops_total']} ops in all")
    return ", ".join(told)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    return indent(tables.aligned(rows, heads=heads, right=right), "  ")
