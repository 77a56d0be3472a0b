"""Seeded inputs of a model that takes no text: in the range that its processor leaves, so that no weight sees what it
never would. What they show is nothing: a figure of closeness on them holds for the program, not for photographs."""

from typing import Any

import numpy as np

from ane_sweep.worker.models._ports import NUMBERS

TILES = 16


def values(port: Any, random: np.random.Generator) -> np.ndarray:
    """One input, float32. Tiles, not noise: averaged over a patch, noise is the same grey everywhere, and every input
    like the next."""
    wish = port.seeded or NUMBERS
    if not wish.tiled:
        return random.uniform(wish.low, wish.high, port.shape).astype(np.float32)
    *before, height, width = port.shape
    tiles = random.uniform(wish.low, wish.high, (*before, TILES, TILES)).astype(np.float32)
    rows, columns = (np.arange(length) * TILES // length for length in (height, width))
    return tiles[..., rows[:, None], columns]


def described(port: Any) -> str:
    """For people: what `values` makes."""
    wish = port.seeded or NUMBERS
    what = f"{TILES} by {TILES} seeded tiles" if wish.tiled else "seeded numbers"
    return f"{what} between {wish.low:g} and {wish.high:g}"
