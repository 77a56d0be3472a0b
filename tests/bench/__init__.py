"""Our own speed, beside what a user would do instead: `python -m tests.bench NAME`.

One module a benchmark, with a one-line docstring and `run() -> list[Row]`. Figures are medians of whole processes.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ane_sweep import tables
from ane_sweep.bridge import protocol


@dataclass
class Row:
    """One line of a result: ours, theirs (or None), the ratio's bar where there is one ("at most 0.25", "under 0.6 s")."""

    what: str
    ours: str
    theirs: str = ""
    ratio: str = ""
    bar: str = ""
    why: str = ""  # why ours differs, where a topic's table has a column for it


def ane_sweep(args: Sequence[str], out: Path, expect: tuple[int, ...] = (0, 1, 3), **env: str) -> float:
    """Wall seconds of one `ane-sweep` process with its outputs under `out`. Raises RuntimeError on another exit code."""
    return timed([sys.executable, "-P", "-m", "ane_sweep", *args], expect, ANE_SWEEP_OUT=str(out), **env)


def timed(command: Sequence[str], expect: tuple[int, ...] = (0,), **env: str) -> float:
    """Wall seconds of one process; its output is thrown away unless it fails."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        done = subprocess.run(
            command, stdout=log, stderr=subprocess.STDOUT, env={**protocol.python_environment(), **env}, check=False
        )
        took = time.perf_counter() - began
        if done.returncode not in expect:
            log.seek(0)
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{log.read().decode()[-2000:]}")
    return took


def said(command: Sequence[str], **env: str) -> Any:
    """What one process prints as its last line, which is JSON. Raises RuntimeError where it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, env={**protocol.python_environment(), **env}, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:300]} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def show(rows: Sequence[Row]) -> str:
    """The rows as an aligned table."""
    cells = [(row.what, row.ours, row.theirs, row.ratio, row.bar) for row in rows]
    return tables.aligned(cells, heads=("what", "ane-sweep", "instead", "ratio", "bar"))
