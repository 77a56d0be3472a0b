"""Memory of this host."""

import psutil


def memory_budget(gib: float | None) -> int:
    """Bytes that all lanes may use together: what was asked for, or 85 % of the host's memory."""
    return int(gib * 2**30) if gib is not None else int(psutil.virtual_memory().total * 0.85)


def budget_and_total(gib: float | None) -> tuple[int, int]:
    """Bytes that all lanes may use together, and what this host has."""
    return memory_budget(gib), int(psutil.virtual_memory().total)
