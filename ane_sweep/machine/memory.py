"""The memory of this host: how much of it tasks may use, and the counters in macOS' `vm_stat`.

vm_stat counts pages that are free, wired, compressed, moved in and out. A first line gives the page size; the others
are `Pages free:      123456.`, with names from Apple's vm_stat.c (system_cmds) and vm_stat(1). Levels are current
values, the others count since the machine started. More is mapped than any process owns while the Neural Engine runs:
"5GB file -> 20GB" (more-ane-transformers notes, 4 April 2023).
"""

import re
from dataclasses import dataclass

from ane_sweep import memory_limits
from ane_sweep.machine import tools

TOOL = "/usr/bin/vm_stat"
LEVELS = {"Pages free": "free", "Pages wired down": "wired", "Pages occupied by compressor": "compressor"}
COUNTS = {"Pageins": "paged_in", "Pageouts": "paged_out", "Swapins": "swapped_in", "Swapouts": "swapped_out"}
_HEAD = re.compile(r"page size of (\d+) bytes")
_LINE = re.compile(r'^"?([^":]+)"?:\s+(\d+)\.?\s*$', re.MULTILINE)


@dataclass(frozen=True)
class Memory:
    """Bytes by the names in LEVELS and COUNTS; values that this vm_stat does not report are left out."""

    levels: dict[str, int]
    counts: dict[str, int]


def read() -> Memory:
    """Return the current memory. Raises ValueError with the reason if vm_stat gives no output."""
    output = tools.text(TOOL)
    if output is None:
        raise ValueError("vm_stat gave nothing")
    return parse(output)


def parse(text: str) -> Memory:
    """Parse an output of vm_stat. Raises ValueError for any other text."""
    size = _HEAD.search(text)
    pages = {name.strip(): int(number) for name, number in _LINE.findall(text)}
    found = [
        {ours: int(size[1]) * pages[theirs] for theirs, ours in names.items() if size and theirs in pages}
        for names in (LEVELS, COUNTS)
    ]
    if not any(found):
        raise ValueError("vm_stat says nothing that is known here")
    return Memory(*found)


def change(before: Memory, after: Memory) -> dict[str, int]:
    """Return changes in bytes by name: of levels (may be negative), and of counts."""
    levels = {name: value - before.levels[name] for name, value in after.levels.items() if name in before.levels}
    counts = {name: value - before.counts[name] for name, value in after.counts.items() if name in before.counts}
    return {**levels, **{name: max(0, value) for name, value in counts.items()}}


def memory_budget(gib: float | None) -> int:
    """Return the bytes that all slots may use together: the given GiB, or 85 % of this host's memory (or its container's)."""
    return int(gib * 2**30) if gib is not None else int(memory_limits.host_bytes() * 0.85)
