"""What past tasks took: one JSON line each, appended; the estimates of later sweeps are made from it."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ane_sweep import locks

_READ_BYTES = 4 << 20  # only the newest part is read: some 30,000 tasks


def append(path: Path, entry: dict[str, Any]) -> None:
    """Add one line. A disk that is full or read-only costs the line and nothing else."""
    line = json.dumps(entry, allow_nan=False).encode() + b"\n"
    with contextlib.suppress(OSError), locks.held(path) as descriptor:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line  # a full disk once tore the last line: lose that one, not this one too
        os.write(descriptor, line)


def read(path: Path) -> list[dict[str, Any]]:
    """The entries, oldest first; torn lines are left out."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _READ_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and "stage" in entry:
                found.append(entry)
    return found
