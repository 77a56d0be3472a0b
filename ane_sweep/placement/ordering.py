"""How sure the order of two estimated latencies on one chip is."""

from typing import Literal

Sureness = Literal["sure", "likely", "not told apart"]


def how_sure(ratio: float) -> Sureness:
    """Return how sure it is that the slower of two estimates on one chip is the slower program; `ratio` is slower / faster."""
    return "sure" if ratio >= 2 else "likely" if ratio >= 1.1 else "not told apart"
