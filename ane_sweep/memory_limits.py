"""Read how much memory this process may use, and how much is free: of the host, or of the control group that holds it.

A container, a CI job or a systemd unit is such a group on Linux (cgroup v1 or v2): the kernel kills what exceeds its limit,
though the host has more. Also pause the collection of garbage.
"""

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_HOST, _GROUP, _MOUNT = Path("/proc/meminfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
# by version: the mount of the memory controller, its file with the limit, and the line of memory.stat that counts what is
# not page cache
_VERSIONS = {1: ("memory", "memory.limit_in_bytes", "total_rss"), 2: ("", "memory.max", "anon")}


@cache
def host_bytes() -> int:
    """Return the bytes of memory that all processes here may use together: the host's, or the group's limit."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *(limit for limit, _ in _groups())])


def most_bytes() -> int:
    """Return the bytes that this process may use: its memory limit (a task has one), or the host's or group's memory."""
    held = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return host_bytes() if held == resource.RLIM_INFINITY else min(held, host_bytes())


def free_bytes() -> int:
    """Return the bytes of memory that are free here, or `most_bytes` where the system does not tell."""
    found = [int(line.split()[1]) << 10 for line in _read(_HOST).splitlines() if line.startswith("MemAvailable:")]
    return max(0, min([*(found or [most_bytes()]), *(limit - used for limit, used in _groups())]))


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pause garbage collection: it disturbs timings, and takes a quarter of the time where a large program is read, whose
    million small objects all live to the end.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _groups() -> Iterator[tuple[int, int]]:
    """Yield (limit, used) in bytes for each control group above this process that has a limit."""
    for line in _read(_GROUP).splitlines():
        _, controllers, path = line.split(":", 2)
        version = 1 if "memory" in controllers.split(",") else 2
        if controllers and version == 2:
            continue
        mount, limits, counted = _VERSIONS[version]
        inside = Path(path.lstrip("/"))  # which a container's own mount may lack: its root is the group itself then
        for group in (inside, *inside.parents):
            limit = _read(_MOUNT / mount / group / limits).strip()
            stat = dict(line.split(maxsplit=1) for line in _read(_MOUNT / mount / group / "memory.stat").splitlines())
            if limit.isdigit():
                yield int(limit), int(stat.get(counted, 0))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
