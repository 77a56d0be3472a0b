"""`ane-sweep list [--json]`: the sweeps that are here: when, what, how their cells ended"""

import shlex
from collections import Counter
from typing import Any

from ane_sweep import outward, tables
from ane_sweep.bridge import record
from ane_sweep.store import runs
from ane_sweep.terminal import OK, columns, count, tell
from ane_sweep.words import Parser


def list_(args: list[str]) -> int:
    """List every sweep under the outputs folder, the last one first; always exit with 0."""
    parser = Parser(
        "list",
        "[--json] [out=PATH]",
        "The sweeps under the outputs folder, the last one first: their names, when they began, how many cells they have and "
        "how these ended.",
        "ane-sweep list",
    )
    parser.json("runs, each with stamp, started, finished, cells, statuses, command, imported", "a line a sweep")
    parser.outputs()
    given = parser.read(args)
    found = [_entry(run) for run in runs.list_runs(given.out)]
    if given.json:
        tell(runs=found)
    elif not found:
        print(f"no sweep yet under {given.out / 'runs'}; `ane-sweep model=minilm` makes one")
    else:
        print(outward.escape_controls(tables.aligned(map(_row, found), heads=_HEADS, width=columns())))
    return OK


_HEADS = ("sweep", "began", "cells", "how they ended", "command")


def _entry(run: runs.Run) -> dict[str, object]:
    records = record.kept_records(run.folder) or []
    return {
        "stamp": run.stamp,
        "started": run.info["started"],
        "finished": run.info["finished"],
        "cells": len(records) or run.info.get("cells"),
        "statuses": dict(Counter(one.status.value for one in records)),
        "command": run.info["command"],
        "imported": bool(run.info.get("imported")),
    }


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return a row of the table. `unfinished` is a sweep without records yet: running or interrupted."""
    ended = ", ".join(f"{number} {status}" for status, number in entry["statuses"].items())
    command = shlex.join(entry["command"] or []) + (" (imported)" if entry["imported"] else "")
    cells = "" if entry["cells"] is None else count(entry["cells"], "cell").partition(" ")[0]
    return entry["stamp"], entry["started"][:16].replace("T", " "), cells, ended or "unfinished", command
