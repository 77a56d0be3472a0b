"""The machines of a fleet that took part in a sweep: what each is, what it did, what was lost on it, which cells it measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from ane_sweep.bridge.record import Record, varying_axes
from ane_sweep.report.blocks import Grid, Para, Section
from ane_sweep.report.doubts import short_name
from ane_sweep.terminal import count, duration

HEADS = ("machine", "chip", "OS", "tasks done", "busy", "lost", "moved away", "cells measured")
NOTE = (
    "busy: seconds of the processes that did the work, preparation side by side counted each. lost: begun there and not ended; "
    "moved away: programs that another machine like it times in its stead. Figures of two machines are never compared as one."
)
_NAMED = 4  # cells of a machine


def rows(records: Sequence[Record], info: Mapping[str, Any]) -> list[list[str]]:
    """Return a row a machine if more than one took part."""
    told = info.get("machines")
    said = {name: one for name, one in told.items() if isinstance(one, dict)} if isinstance(told, dict) else {}
    axes = varying_axes(list(records))
    cells: dict[str, list[str]] = {name: [] for name in said}
    for record in records:
        name = record.host.get("worker")
        if record.timings and name in cells:
            cells[name].append(short_name(record, axes))
    if len(said) < 2:
        return []
    return [
        [
            name, str(one.get("chip") or "-"), str(one.get("os") or "-"), str(one.get("tasks", 0)),
            duration(float(one.get("seconds", 0))), str(one.get("lost", 0)), str(one.get("moved", 0)), _cells(cells[name]),
        ]
        for name, one in sorted(said.items())
    ]  # fmt: skip


def section(records: Sequence[Record], info: Mapping[str, Any]) -> Section | None:
    found = rows(records, info)
    if not found:
        return None
    grid = Grid(list(HEADS), found, [False] * 3 + [True] * 4 + [False])
    return Section("Machines", [grid, Para(NOTE)])


def lines(records: Sequence[Record], info: Mapping[str, Any]) -> list[str]:
    """Return the rows for a terminal: `m4-a (m4, Linux 6.8): 12 tasks, 40 s busy, 1 lost; measured 2 cells: chunks=1; chunks=2`."""
    return [
        f"{name} ({chip}, {system}): {count(int(tasks), 'task')}, {busy} busy"
        + "".join(f", {n} {what}" for n, what in ((lost, "lost"), (moved, "moved away")) if n != "0")
        + f"; measured {measured}"
        for name, chip, system, tasks, busy, lost, moved, measured in rows(records, info)
    ]


def _cells(labels: Sequence[str]) -> str:
    shown = "; ".join(labels[:_NAMED]) + (" ..." if len(labels) > _NAMED else "")
    return f"{count(len(labels), 'cell')}: {shown}" if labels else "0 cells"
