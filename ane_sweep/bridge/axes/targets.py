"""The oldest OS that a program must run on, as coremltools names it."""

# Oldest first. ML Programs begin at iOS15; the newest is what coremltools 9.0's `ct.target` knows (a test compares).
TARGETS = ("iOS15", "iOS16", "iOS17", "iOS18", "iOS26")
MACOS_TARGETS = {"macOS12": "iOS15", "macOS13": "iOS16", "macOS14": "iOS17", "macOS15": "iOS18", "macOS26": "iOS26"}


def since(target: str) -> tuple[str, ...]:
    """Return a target and the newer ones."""
    return TARGETS[TARGETS.index(target) :]
