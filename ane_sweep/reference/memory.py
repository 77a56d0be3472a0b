"""Read how much memory this process may use."""

import os
import resource
from pathlib import Path

_FREE = Path("/proc/meminfo")


def most_bytes() -> int:
    """Return the bytes that this process may use: its memory limit (a task has one), or the host's memory."""
    held, host = resource.getrlimit(resource.RLIMIT_DATA)[0], os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return host if held == resource.RLIM_INFINITY else min(held, host)


def free_bytes() -> int:
    """Return the bytes of memory that are free on this host, or all its memory where the system does not tell."""
    try:
        lines = _FREE.read_text(encoding="ascii").splitlines()
    except OSError:
        return most_bytes()
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] << 10 if found else most_bytes()
