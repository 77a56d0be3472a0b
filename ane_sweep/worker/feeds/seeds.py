"""Seeded inputs of a model that takes no text, in the range of its processor's output.

They show no real picture or sound: their PSNR judges the program, not its use on photographs.
"""

import numpy as np

from ane_sweep.worker.models._ports import NUMBERS, Port

TILES = 16


def draw_values(port: Port, random: np.random.Generator) -> np.ndarray:
    """Draw one input, float32.

    Pictures are tiles, not noise: averaged over a patch, noise is the same grey everywhere, in every input.
    """
    wish = port.seeded or NUMBERS
    if not wish.tiled:
        return random.uniform(wish.low, wish.high, port.shape).astype(np.float32)
    *before, height, width = port.shape
    tiles = random.uniform(wish.low, wish.high, (*before, TILES, TILES)).astype(np.float32)
    rows, columns = (np.arange(length) * TILES // length for length in (height, width))
    return tiles[..., rows[:, None], columns]


def describe_values(port: Port) -> str:
    """Describe for people the inputs that `draw_values` makes."""
    wish = port.seeded or NUMBERS
    kind = f"{TILES} by {TILES} seeded tiles" if wish.tiled else "seeded numbers"
    return f"{kind} between {wish.low:g} and {wish.high:g}"
