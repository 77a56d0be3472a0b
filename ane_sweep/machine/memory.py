"""The memory of this host: what tasks may use of it, and how macOS' `vm_stat` reports it.

vm_stat counts pages that are free, wired, compressed; moved in and out. Its lines are `Pages free:      123456.` behind a first
one that names the size of a page; the names are those of Apple's vm_stat.c (system_cmds) and vm_stat(1). Levels are current
values, the others count since the machine started. More is mapped than any process owns while the Neural Engine runs:
"5GB file -> 20GB" (more-ane-transformers notes, 4 April 2023).
"""

import re
from dataclasses import dataclass

import psutil

from ane_sweep.machine import tools

TOOL = "/usr/bin/vm_stat"
LEVELS = {"Pages free": "free", "Pages wired down": "wired", "Pages occupied by compressor": "compressor"}
COUNTS = {"Pageins": "paged_in", "Pageouts": "paged_out", "Swapins": "swapped_in", "Swapouts": "swapped_out"}
_HEAD = re.compile(r"page size of (\d+) bytes")
_LINE = re.compile(r'^"?([^":]+)"?:\s+(\d+)\.?\s*$', re.MULTILINE)


@dataclass(frozen=True)
class Memory:
    """Bytes by the names of LEVELS and COUNTS; values that this vm_stat does not report are left out."""

    levels: dict[str, int]
    counts: dict[str, int]


def read() -> Memory:
    """Return the memory now. Raises ValueError with the reason if vm_stat gives no output."""
    output = tools.text(TOOL)
    if output is None:
        raise ValueError("vm_stat gave nothing")
    return parse(output)


def parse(text: str) -> Memory:
    """Return the memory in an output of vm_stat. Raises ValueError for any other text."""
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
    """Return changes in bytes by name: of levels, which may be negative, and of the counts in between."""
    levels = {name: value - before.levels[name] for name, value in after.levels.items() if name in before.levels}
    counts = {name: value - before.counts[name] for name, value in after.counts.items() if name in before.counts}
    return {**levels, **{name: max(0, value) for name, value in counts.items()}}


def memory_budget(gib: float | None) -> int:
    """Return the bytes that all slots may use together: what was asked for, or 85 % of the host's memory."""
    return int(gib * 2**30) if gib is not None else int(psutil.virtual_memory().total * 0.85)


def budget_and_total(gib: float | None) -> tuple[int, int]:
    """Return the bytes that all slots may use together, and what this host has."""
    return memory_budget(gib), int(psutil.virtual_memory().total)
