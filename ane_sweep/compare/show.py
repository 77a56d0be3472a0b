"""A comparison as Markdown for people and as JSON for scripts."""

import json
from collections import Counter

from ane_sweep.compare.judge import IMPROVEMENTS, REGRESSIONS, UNTIMED, Comparison
from ane_sweep.outward import markdown
from ane_sweep.results.difference import Difference

SHOWN = 20  # cells of one bucket; the JSON has all


def as_markdown(found: Comparison, a: str, b: str, *, headline: str, level: float, least_percent: float) -> str:
    """Return a comparison in Markdown: the headline, the counts, then each bucket that is not empty."""
    lines = [f"## {markdown(a)} -> {markdown(b)}", "", f"**{headline}**", ""]
    lines += [
        f"{len(found.pairs)} cell{'' if len(found.pairs) == 1 else 's'} in both"
        + _only("only in the first", found.only_a)
        + _only("only in the second", found.only_b)
    ]
    if found.tests:
        lines.append(
            f"{found.tests} timings tested, at {level:.0%} for all of them together (Holm); called different from {least_percent:g} % on"
        )
    lines += [f"Compared without a test: {UNTIMED}."]
    lines += still_possible(found)
    lines += [f"- differs: {markdown(mark)}" for mark in found.marks]
    for name in found.buckets:
        if changes := found.bucket(name):
            lines += ["", f"### {name}: {len(changes)}", ""]
            lines += [f"- {markdown(f'{change.cell}: {change.text}')}" for change in changes[:SHOWN]]
            lines += [f"- ... {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    return "\n".join(lines) + "\n"


def verdict(found: Comparison) -> str:
    """Return the verdict: `regression: 1 slower, 2 larger`, or no regression, the number of cells and what their
    headline latencies are; then the cells that were not compared and the better ones.
    """
    worse = [f"{n} {name}" for name in REGRESSIONS if (n := len(found.bucket(name)))]
    better = [f"{n} {name}" for name in IMPROVEMENTS if (n := len(found.bucket(name)))]
    every, tested, untested = len(found.pairs), found.tested, len(found.untested)
    reasons = Counter(found.untested.values())
    why = ", ".join(reason if len(reasons) == 1 else f"{reason}: {n}" for reason, n in reasons.items())
    if worse:
        text = f"regression: {', '.join(worse)}"
        text += f"; {untested} of {every} cells could not be compared ({why})" if untested else ""
    elif not tested:
        text = f"no latency could be compared ({why or 'no cell in both'}); nothing else regressed"
    elif untested:
        text = f"no regression among {tested} of {every} cells{_by(found)}; {untested} could not be compared ({why})"
    else:
        text = f"no regression {f'among {every} cells' if every > 1 else 'in the 1 cell'}{_by(found)}"
    return text + (f"; better: {', '.join(better)}" if better else "")


def _by(found: Comparison) -> str:
    """Return what the cells were compared by: ` tested` for timings, `, by the estimates for M4`."""
    ways = found.compared_by
    if set(ways) == {"tests"}:
        return " tested"
    return ", by " + ", ".join(way if len(ways) == 1 else f"{way} ({n})" for way, n in ways.items())


def still_possible(found: Comparison) -> list[str]:
    """Return a line on how much slower the least certain unchanged cell may be, as scatter and few processes can hide that much."""
    unchanged = {cell: by["median_ms"] for cell, by in found.timings.items() if "median_ms" in by}
    reach = {cell: one.high for cell, one in unchanged.items() if one.verdict == "same" and one.high is not None}
    if not reach:
        return []
    cell = max(reach, key=lambda name: reach[name])
    return [
        f"Where no difference in latency was shown, it may still be up to {100 * (reach[cell] - 1):.0f} % higher ({cell})."
    ]


def _only(where: str, cells: list[str]) -> str:
    if not cells:
        return ""
    return f"; {len(cells)} {where} ({markdown(', '.join(cells[:3]))}{', ...' if len(cells) > 3 else ''})"


def as_json(found: Comparison, a: str, b: str, *, headline: str, level: float, least_percent: float, code: int) -> str:
    """Return one JSON object: {a, b, verdict, exit, level, least_percent, tests, cells, tested, untested, only_a, only_b, marks,
    changes, timings}."""
    plain = {name: getattr(found, name) for name in ("tested", "untested", "only_a", "only_b", "marks")}
    whole: dict[str, object] = {
        "schema": 1, "a": a, "b": b, "verdict": headline, "exit": code, "level": level, "least_percent": least_percent,
        "tests": found.tests, "cells": len(found.pairs), **plain, "changes": [vars(change) for change in found.changes],
        "timings": {cell: {name: _plain(one) for name, one in by.items()} for cell, by in found.timings.items()},
    }  # fmt: skip
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def _plain(one: Difference) -> dict[str, object]:
    return {**vars(one), "processes": list(one.processes), "percent": one.percent}
