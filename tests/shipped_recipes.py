"""What the tests of compression share: the shipped recipes, one input, and what a program makes of it."""

from pathlib import Path

import numpy as np

from ane_sweep.bridge import recipes
from tests.shipped import all_shipped

SEQ = 32
FEED = {"input_ids": (np.arange(SEQ, dtype=np.int32)[None] * 7) % 900}
OPTIONS = all_shipped("precision")


def recipe(name: str) -> dict:
    """The recipe of an option in conf/precision, in full."""
    return recipes.canonical(OPTIONS[name]["weights"])


def predicted(folder: Path) -> np.ndarray:
    """Logits, float32, by the reference runtime."""
    from ane_sweep.worker.runtimes import reference

    return reference.load({}, {"program": folder}).predict(FEED)["logits"].astype(np.float32)
