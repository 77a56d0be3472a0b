"""Memory that was freed, and that this process still has."""

import ctypes
import gc
import sys


def give_back() -> None:
    """Programs and traces that refer to themselves, then what the C library keeps of what was freed in pieces."""
    gc.collect()
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
