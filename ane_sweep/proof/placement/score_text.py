"""Scores as text: what `python -m ane_sweep.proof.placement.score` prints."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from textwrap import indent
from typing import Any

from ane_sweep import tables


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
    for key, title in (("latency_by_chip", "chip"), ("latency_by_family", "family")):
        yield f"\nLatency estimate against published figures, by {title}"
        rows = (
            (
                entry["name"],
                str(entry["count"]),
                "-" if entry["rank_correlation"] is None else f"{entry['rank_correlation']:.2f}",
                f"{entry['median_ratio']:.2f}",
                f"{entry['median_error']:.0%}",
            )
            for entry in scores[key]
        )
        yield _table((title, "rows", "rank correlation", "published/estimated", "median error"), rows, range(1, 5))


def _op_counts(entries: list[dict[str, Any]]) -> Iterator[str]:
    yield "\nOp counts: published beside predicted (a package is given as KEY=PATH)"
    rows = []
    for entry in entries:
        ops = entry["predicted"]
        predicted = f"{ops['cpu']} CPU / {ops['ane']} ANE of {ops['total']}" if ops else "-"
        published = f"{entry['ops_cpu']} CPU / {entry['ops_ane'] or 'all'} ANE"
        rows.append((entry["key"], entry["chip"], published, predicted, entry["note"]))
    yield _table(("key", "chip", "published", "predicted", "note"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    return indent(tables.aligned(rows, heads=heads, right=right), "  ")
