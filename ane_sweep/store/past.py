"""Durations and memory peaks of past tasks, one JSON line each, from which later sweeps make their estimates."""

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from ane_sweep.bridge import disk, kept
from ane_sweep.store import locks

_READ_BYTES = 4 << 20  # only the newest part is read: some 30,000 tasks


@dataclass(frozen=True)
class Past:
    """The duration and memory peak of one task over `work` parameter bytes; `sort` and `rule_s` as in bridge.task.Task."""

    stage: str
    work: int | float
    seconds: int | float
    peak_bytes: int | float | None
    sort: str = ""
    rule_s: int | float = 0


def append(path: Path, entry: Past) -> None:
    """Append one line. A full or read-only disk only loses the line."""
    line = json.dumps(vars(entry), allow_nan=False).encode() + b"\n"
    with contextlib.suppress(OSError), locks.hold(path) as lock:
        end = os.lseek(lock.descriptor, 0, os.SEEK_END)
        if end and os.pread(lock.descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line  # a full disk once tore the last line: lose that one, not this one too
        os.write(lock.descriptor, line)


def read(path: Path) -> list[Past]:
    """Return the entries, oldest first. Delete malformed lines, as a full disk leaves them, and warn about them."""
    try:
        with open(path, "rb") as file:
            begin = max(0, os.fstat(file.fileno()).st_size - _READ_BYTES)
            file.seek(begin)
            lines = file.read().splitlines()[1 if begin else 0 :]
    except OSError:
        return []
    entries = [_entry(line) for line in lines]
    if None in entries:
        _mend(path)
    return [entry for entry in entries if entry is not None]


def _entry(line: bytes) -> Past | None:
    with contextlib.suppress(ValueError, RecursionError):
        return kept.as_kind(json.loads(line, parse_constant=disk.no_constant), Past)
    return None


def _mend(path: Path) -> None:
    """Delete malformed lines. The lock excludes lines that another process is still writing."""
    with contextlib.suppress(OSError), locks.hold(path) as lock:
        lines = os.pread(lock.descriptor, os.fstat(lock.descriptor).st_size, 0).splitlines()
        good = [line for line in lines if _entry(line) is not None]
        if len(good) < len(lines):
            kept.tell(f"{path} is damaged: {len(lines) - len(good)} of its {len(lines)} lines are deleted")
            text = b"".join(line + b"\n" for line in good)
            os.pwrite(lock.descriptor, text, 0)  # in place, and shorter: killed in between, it is mended the next time
            os.ftruncate(lock.descriptor, len(text))
