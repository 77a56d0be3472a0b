"""Compute ranks and rank correlation."""

from collections.abc import Sequence

import numpy as np


def ranks(values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return ranks, 1 for the smallest; equal values share the mean of their ranks (as scipy.stats.rankdata)."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Return the rank correlation of two samples of one length, -1 to 1; 0 if all values of one are equal."""
    one, two = (ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    norm = float(np.linalg.norm(one) * np.linalg.norm(two))
    return float(one @ two) / norm if norm else 0.0
