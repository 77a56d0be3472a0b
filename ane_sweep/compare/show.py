"""A comparison as Markdown for people and as JSON for scripts."""

import json
from typing import Any

from ane_sweep.compare.difference import Difference
from ane_sweep.compare.judge import BUCKETS, IMPROVEMENTS, REGRESSIONS, Comparison
from ane_sweep.outward import markdown

SHOWN = 20  # cells of one bucket; the JSON has all


def as_markdown(found: Comparison, a: str, b: str, *, level: float, least_percent: float) -> str:
    """The verdict, what differs in general, then each bucket that holds something."""
    lines = [f"## {markdown(a)} -> {markdown(b)}", "", f"**{verdict(found)}**", ""]
    lines += [
        f"{len(found.pairs)} cell{'' if len(found.pairs) == 1 else 's'} in both"
        + _only("only in the first", found.only_a)
        + _only("only in the second", found.only_b)
    ]
    if found.tests:
        lines.append(
            f"{found.tests} timings tested, at {level:.0%} for all of them together (Holm); called different from {least_percent:g} % on"
        )
    lines += [f"- differs: {markdown(mark)}" for mark in found.marks]
    for name in BUCKETS:
        changes = found.bucket(name)
        if changes:
            lines += ["", f"### {name}: {len(changes)}", ""]
            lines += [f"- {markdown(f'{change.cell}: {change.text}')}" for change in changes[:SHOWN]]
            lines += [f"- ... {len(changes) - SHOWN} more"] if len(changes) > SHOWN else []
    return "\n".join(lines) + "\n"


def verdict(found: Comparison) -> str:
    """`regression: 1 slower, 2 larger`, or `no regression`, with what became better."""
    worse = [f"{n} {name}" for name in REGRESSIONS if (n := len(found.bucket(name)))]
    better = [f"{n} {name}" for name in IMPROVEMENTS if (n := len(found.bucket(name)))]
    text = f"regression: {', '.join(worse)}" if worse else "no regression"
    return text + (f"; better: {', '.join(better)}" if better else "")


def _only(where: str, cells: list[str]) -> str:
    if not cells:
        return ""
    return f"; {len(cells)} {where} ({markdown(', '.join(cells[:3]))}{', ...' if len(cells) > 3 else ''})"


def as_json(found: Comparison, a: str, b: str, *, level: float, least_percent: float, code: int) -> str:
    """One object: {a, b, verdict, exit, level, least_percent, tests, cells, only_a, only_b, marks, changes, timings}."""
    whole: dict[str, Any] = {
        "a": a,
        "b": b,
        "verdict": verdict(found),
        "exit": code,
        "level": level,
        "least_percent": least_percent,
        "tests": found.tests,
        "cells": len(found.pairs),
        "only_a": found.only_a,
        "only_b": found.only_b,
        "marks": found.marks,
        "changes": [vars(change) for change in found.changes],
        "timings": {cell: {name: _plain(one) for name, one in by.items()} for cell, by in found.timings.items()},
    }
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def _plain(one: Difference) -> dict[str, Any]:
    return {**vars(one), "processes": list(one.processes), "percent": one.percent}
