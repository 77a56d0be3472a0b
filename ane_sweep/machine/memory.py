"""Memory of this host."""



def memory_budget(gib: float | None) -> int:
    """Bytes that all lanes may use together: what was asked for, or 85 % of the host's memory."""
    import psutil

    return int(gib * 2**30) if gib is not None else int(psutil.virtual_memory().total * 0.85)
