"""`ane-sweep list [--json]`: the sweeps that are here: when, what, how their cells ended"""

import shlex
from collections import Counter
from typing import TypedDict

from ane_sweep import outward, tables
from ane_sweep.bridge import record
from ane_sweep.store import runs
from ane_sweep.terminal import columns, count, print_result
from ane_sweep.words import Parser


def list_(args: list[str]) -> int:
    """List every sweep in the outputs folder, the newest first; the exit code is always 0."""
    parser = Parser(
        "list [--json] [out=PATH]",
        "The sweeps under the outputs folder, the last one first: their names, when they began, how many cells they have and "
        "how these ended.",
        "ane-sweep list",
    )
    parser.json("runs, each with stamp, started, finished, cells, statuses, command, imported", "a line a sweep")
    parser.outputs()
    given = parser.read(args)
    found = [_describe_run(run) for run in runs.list_runs(given.out)]
    text = f"no sweep yet under {given.out / 'runs'}; `ane-sweep model=minilm` makes one"
    if found and not given.json:
        text = outward.escape_controls(tables.aligned(map(_row, found), heads=_HEADS, width=columns()))
    return print_result(given.json, text, runs=found)


_HEADS = ("sweep", "began", "cells", "how they ended", "command")


class _Entry(TypedDict):
    stamp: str
    started: str
    finished: str | None
    cells: int | None
    statuses: dict[str, int]
    command: list[str] | None
    imported: bool


def _describe_run(run: runs.Run) -> _Entry:
    records = record.kept_records(run.folder) or []
    return _Entry(
        stamp=run.stamp,
        started=run.info["started"],
        finished=run.info["finished"],
        cells=len(records) or run.info.get("cells"),
        statuses=dict(Counter(one.status.value for one in records)),
        command=run.info["command"],
        imported=bool(run.info.get("imported")),
    )


def _row(entry: _Entry) -> tuple[str, ...]:
    """Return a row of the table. `unfinished` is a sweep without records: running or interrupted."""
    ended = ", ".join(f"{number} {status}" for status, number in entry["statuses"].items())
    command = shlex.join(entry["command"] or []) + (" (imported)" if entry["imported"] else "")
    cells = "" if entry["cells"] is None else count(entry["cells"], "cell").partition(" ")[0]
    return entry["stamp"], entry["started"][:16].replace("T", " "), cells, ended or "unfinished", command
