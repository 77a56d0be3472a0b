"""How close what a model says is to the reference (PSNR: stats/psnr.py). numpy only; sums in float64.
Arguments are keywords: probabilities are taken from `reference`, and swapping the two changes the figure."""

import numpy as np

from ane_sweep.stats.ranks import spearman

UNITS = {"psnr_db": "dB", "psnr_worst_db": "dB"}  # of the figures of psnr.Outputs; the others have none
_ROWS = 64  # rows of a (positions, vocabulary) block held in float64 at a time


def kl_rows(*, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """KL(softmax(reference) || softmax(candidate)) in nats, a row of (rows, classes) logits each -> (rows,)."""
    parts = [
        _kl_block(reference[start : start + _ROWS], candidate[start : start + _ROWS])
        for start in range(0, len(reference), _ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _kl_block(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    p, q = log_softmax(reference), log_softmax(candidate)
    # Rounding can leave -1e-17 for equal rows; a divergence is never below 0.
    return np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0.0)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def same_top1(*, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Whether the largest class of each row of (rows, classes) is the same -> (rows,) bool."""
    return reference.argmax(axis=-1) == candidate.argmax(axis=-1)


def same_among(count: int, *, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """How many of the `count` largest classes of each row of (rows, classes) are the same ones -> (rows,), 0 to 1."""
    count = min(count, reference.shape[-1])
    first, second = (np.argpartition(-one, count - 1, axis=-1)[:, :count] for one in (reference, candidate))
    return (first[:, :, None] == second[:, None, :]).any(-1).mean(-1)


def mean_pool(hidden: np.ndarray, valid: np.ndarray | slice) -> np.ndarray:
    """(S, H) -> (H,) float64: the mean over valid positions, (S,) bool or a slice."""
    return hidden[valid].astype(np.float64).mean(axis=0)


def nearest_other(vectors: np.ndarray) -> np.ndarray:
    """For each of (N, H) vectors the index of the other one at the smallest angle -> (N,) int. N must be 2 or more."""
    similarity = _similarity(vectors)
    np.fill_diagonal(similarity, -np.inf)
    return similarity.argmax(axis=1)


def rank_agreement(*, reference: np.ndarray, candidate: np.ndarray) -> float:
    """Spearman's rank correlation of the cosine similarities of all pairs of (N, H) vectors, -1 to 1; N of 3 or more.

    1: every search among these vectors gives the same order as with the reference. 0 where all pairs are equally near.
    """
    upper = np.triu_indices(len(reference), 1)
    return spearman(*(_similarity(vectors)[upper] for vectors in (reference, candidate)))


def _similarity(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return unit @ unit.T


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Of two vectors (H,)."""
    return float(_similarity(np.stack([one, other]))[0, 1])
