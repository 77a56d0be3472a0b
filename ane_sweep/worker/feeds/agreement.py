"""Figures of the agreement of a model's outputs with the reference (PSNR: stats/psnr.py). numpy only; sums in float64.

Arguments are keywords: probabilities are taken from `reference`, and swapping the two changes the figure.
"""

import numpy as np

from ane_sweep.stats.ranks import spearman

_ROWS = 64  # rows of a (positions, vocabulary) block held in float64 at a time


def kl_rows(*, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Return KL(softmax(reference) || softmax(candidate)) in nats of each row of (rows, classes) logits -> (rows,)."""
    parts = [np.zeros(0)]
    for start in range(0, len(reference), _ROWS):
        p, q = (log_softmax(rows[start : start + _ROWS]) for rows in (reference, candidate))
        # Rounding can leave -1e-17 for equal rows; a divergence is never below 0.
        parts.append(np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0.0))
    return np.concatenate(parts)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    logs: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def same_top1(*, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Compare the largest class of each row of (rows, classes) -> (rows,) bool."""
    same: np.ndarray = reference.argmax(axis=-1) == candidate.argmax(axis=-1)
    return same


def same_among(count: int, *, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Return, for each row of (rows, classes), the share of the `count` largest classes that both have -> (rows,), 0 to 1."""
    count = min(count, reference.shape[-1])
    first, second = (np.argpartition(-logits, count - 1, axis=-1)[:, :count] for logits in (reference, candidate))
    shares: np.ndarray = (first[:, :, None] == second[:, None, :]).any(-1).mean(-1)
    return shares


def mean_pool(hidden: np.ndarray, valid: np.ndarray | slice) -> np.ndarray:
    """Return the mean of (S, H) over valid positions, (S,) bool or a slice -> (H,) float64."""
    mean: np.ndarray = hidden[valid].astype(np.float64).mean(axis=0)
    return mean


def nearest_other(vectors: np.ndarray) -> np.ndarray:
    """Return for each of (N, H) vectors the index of the nearest other vector by angle -> (N,) int; N of 2 or more."""
    similarity = _similarity(vectors)
    np.fill_diagonal(similarity, -np.inf)
    nearest: np.ndarray = similarity.argmax(axis=1)
    return nearest


def rank_agreement(*, reference: np.ndarray, candidate: np.ndarray) -> float:
    """Return Spearman's rank correlation of the cosine similarities of all pairs of (N, H) vectors; N of 3 or more.

    It lies between -1 and 1. 1: every search among these vectors gives the same order as with the reference. 0: all
    pairs are equally near.
    """
    upper = np.triu_indices(len(reference), 1)
    return spearman(*(_similarity(vectors)[upper] for vectors in (reference, candidate)))


def _similarity(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    similarity: np.ndarray = unit @ unit.T
    return similarity


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors (H,)."""
    return float(_similarity(np.stack([one, other]))[0, 1])
