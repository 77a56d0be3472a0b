"""Apple's own processes that compile and run programs for the Neural Engine: their number, memory, and restarts between
two readings.

`aned` is the daemon, `ANECompilerService` the compiler: an ANE compilation's memory and time are spent there, not in
the process that loads a model (coremltools issue 2473 and a published study of an M4 and M6 name them). They are read
with `ps`, never while a sample is taken; a process that starts and ends between two readings is missed.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ane_sweep.machine import stand_in, tools

NAMES = ("aned", "ANECompilerService", "coremlcompilerd", "anecompilerd")
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)")


@dataclass(frozen=True)
class Helper:
    name: str
    pid: int
    resident_bytes: int
    cpu_time: str


def rows() -> list[Helper]:
    """Return Apple's helper processes that run now; an empty list also if the host cannot report them."""
    if sys.platform != "darwin" and stand_in.active() is None:
        return []
    return parse(tools.text("/bin/ps", "-axo", "pid=,rss=,time=,comm=") or "")


def parse(text: str) -> list[Helper]:
    """Parse lines `pid rss-in-KiB time command` and return the helpers of `NAMES`, sorted by name and pid."""
    found = []
    for line in text.splitlines():
        match line.split(None, 3):
            case [pid, kib, cpu_time, command] if pid.isdigit() and kib.isdigit():
                name = command.rsplit("/", 1)[-1].strip()
                if name in NAMES:
                    found.append(Helper(name, int(pid), int(kib) * 1024, cpu_time))
    return sorted(found, key=lambda helper: (helper.name, helper.pid))


def sizes() -> dict[str, int]:
    """Return the resident bytes of all helpers by name."""
    found = Counter[str]()
    for helper in rows():
        found[helper.name] += helper.resident_bytes
    return dict(found)


@dataclass(frozen=True)
class Life:
    """One process over several readings: CPU seconds spent, the largest memory seen, and `stayed`, `started` or `ended`
    (or both: `came and went`).
    """

    name: str
    pid: int
    cpu_s: float | None
    resident_bytes: int
    life: str


def seconds(text: str) -> float | None:
    """Convert a time of ps, `0:01.23`, `12:34:56` or `1-02:03:04`, to seconds; None for other text."""
    found = _TIME.fullmatch(text.strip())
    if not found:
        return None
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(found[4].replace(",", "."))


def lives(looks: Sequence[Sequence[Helper]]) -> list[Life]:
    """Return the lives of the processes in a sequence of readings; a pid whose CPU time falls is a new process."""
    seen: dict[tuple[str, int], list[tuple[int, Helper]]] = defaultdict(list)
    for number, look in enumerate(looks):
        for one in look:
            seen[one.name, one.pid].append((number, one))
    found = []
    for (name, pid), times in sorted(seen.items()):
        (first, begin), (last, end) = times[0], times[-1]
        was, now = seconds(begin.cpu_time), seconds(end.cpu_time)
        spent = None if was is None or now is None else now if first > 0 or now < was else now - was
        came, went = first > 0, last < len(looks) - 1
        life = "came and went" if came and went else "started" if came else "ended" if went else "stayed"
        most = max(helper.resident_bytes for _, helper in times)
        found.append(Life(name, pid, None if spent is None else round(spent, 3), most, life))
    return found


def replaced(found: Sequence[Life]) -> list[str]:
    """Return the names of helpers of which one process ended and another started: it was restarted, or died."""
    ended = {one.name for one in found if one.life == "ended"}
    return sorted(ended & {one.name for one in found if one.life == "started"})
