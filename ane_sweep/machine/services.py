"""The life of Apple's own processes (helpers.py) while something runs: CPU time they spent, memory, who came and went.

Looked at with `ps` at moments, never while a sample is taken; what lives and ends between two looks is not seen.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ane_sweep.machine.helpers import Helper

_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:[.,]\d+)?)")


@dataclass(frozen=True)
class Life:
    """One process: CPU seconds spent between the looks, the most memory seen, and `stayed`, `started` or `ended` (or both:
    `came and went`)."""

    name: str
    pid: int
    cpu_s: float | None
    resident_bytes: int
    life: str


def seconds(text: str) -> float | None:
    """`0:01.23`, `12:34:56` and `1-02:03:04` of ps; None for what is no time."""
    found = _TIME.fullmatch(text.strip())
    if not found:
        return None
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(found[4].replace(",", "."))


def lives(looks: Sequence[Sequence[Helper]]) -> list[Life]:
    """Return the lives of processes seen in looks in order of time; a pid whose CPU time falls is another process."""
    seen: dict[tuple[str, int], list[tuple[int, Helper]]] = {}
    for number, look in enumerate(looks):
        for one in look:
            seen.setdefault((one.name, one.pid), []).append((number, one))
    found = []
    for (name, pid), times in sorted(seen.items()):
        (first, begin), (last, end) = times[0], times[-1]
        was, now = seconds(begin.cpu_time), seconds(end.cpu_time)
        spent = None if was is None or now is None else now if first > 0 or now < was else now - was
        word = {
            (True, True): "came and went",
            (True, False): "started",
            (False, True): "ended",
            (False, False): "stayed",
        }
        life = word[first > 0, last < len(looks) - 1]
        found.append(
            Life(name, pid, None if spent is None else round(spent, 3), max(h.resident_bytes for _, h in times), life)
        )
    return found


def plain(found: Sequence[Life]) -> list[dict[str, Any]]:
    """For the record."""
    return [asdict(one) for one in found]


def replaced(found: Sequence[Life]) -> list[str]:
    """Names of which one process ended and another started: it was restarted, or it died."""
    ended = {one.name for one in found if one.life == "ended"}
    return sorted(ended & {one.name for one in found if one.life == "started"})
