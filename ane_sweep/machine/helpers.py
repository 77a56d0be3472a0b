"""Apple's own processes that compile and run programs for the Neural Engine: are they there, and how big are they?

`aned` is the daemon, `ANECompilerService` the compiler: an ANE compilation's memory and time are spent there, not in
the process that loads a model (coremltools issue 2473 and a published study of an M4 and M6 name them).
"""

import sys
from dataclasses import asdict, dataclass
from typing import Any

from ane_sweep.machine import stand_in, tools

NAMES = ("aned", "ANECompilerService", "coremlcompilerd", "anecompilerd")


@dataclass(frozen=True)
class Helper:
    name: str
    pid: int
    resident_bytes: int
    cpu_time: str


def rows() -> list[Helper]:
    """Return the helpers that run now; an empty list also if the host cannot report them."""
    if sys.platform != "darwin" and stand_in.active() is None:
        return []
    return parse(tools.text("/bin/ps", "-axo", "pid=,rss=,time=,comm=") or "")


def parse(text: str) -> list[Helper]:
    """Return the helpers of `NAMES` among lines `pid rss-in-KiB time command`, sorted by name and pid."""
    found = []
    for line in text.splitlines():
        words = line.split(None, 3)
        if len(words) == 4 and words[0].isdigit() and words[1].isdigit():
            name = words[3].rsplit("/", 1)[-1].strip()
            if name in NAMES:
                found.append(Helper(name, int(words[0]), int(words[1]) * 1024, words[2]))
    return sorted(found, key=lambda helper: (helper.name, helper.pid))


def sizes() -> dict[str, int]:
    """Return the resident bytes of all helpers by name."""
    found: dict[str, int] = {}
    for helper in rows():
        found[helper.name] = found.get(helper.name, 0) + helper.resident_bytes
    return found


def state() -> list[dict[str, Any]]:
    """Return the helpers in the form of a record."""
    return [asdict(helper) for helper in rows()]
