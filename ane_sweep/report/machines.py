"""The machines of a fleet that took part in a sweep: their facts, work, losses, and the cells that each measured."""

from collections.abc import Mapping, Sequence

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


def rows(records: Sequence[Record], info: Mapping[str, object]) -> list[list[str]]:
    """Return a row per machine if more than one took part."""
    listed = info.get("machines")
    known = {n: facts for n, facts in listed.items() if isinstance(facts, dict)} if isinstance(listed, dict) else {}
    axes = varying_axes(list(records))
    cells: dict[str, list[str]] = {name: [] for name in known}
    for record in records:
        if record.timings and record.host.get("worker") in cells:
            cells[record.host["worker"]].append(short_name(record, axes))
    found = []
    for name, facts in sorted(known.items()):
        which = "; ".join(cells[name][:_NAMED]) + (" ..." if len(cells[name]) > _NAMED else "")
        measured = count(len(cells[name]), "cell") + (f": {which}" if which else "")
        about, did = (str(facts.get(key) or "-") for key in ("chip", "os")), duration(float(facts.get("seconds", 0)))
        tasks, lost, moved = (str(facts.get(key, 0)) for key in ("tasks", "lost", "moved"))
        found.append([name, *about, tasks, did, lost, moved, measured])
    return found if len(found) > 1 else []


def section(records: Sequence[Record], info: Mapping[str, object]) -> Section | None:
    found = rows(records, info)
    grid = Grid(list(HEADS), found, [False] * 3 + [True] * 4 + [False])
    return Section("Machines", [grid, Para(NOTE)]) if found else None


def lines(records: Sequence[Record], info: Mapping[str, object]) -> list[str]:
    """Return the rows for a terminal: `m4-a (m4, Linux 6.8): 12 tasks, 40 s busy, 1 lost; measured 2 cells: chunks=1; chunks=2`."""
    return [
        f"{name} ({chip}, {system}): {count(int(tasks), 'task')}, {busy} busy"
        + "".join(f", {n} {what}" for n, what in ((lost, "lost"), (moved, "moved away")) if n != "0")
        + f"; measured {measured}"
        for name, chip, system, tasks, busy, lost, moved, measured in rows(records, info)
    ]
