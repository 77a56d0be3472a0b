"""How close one array is to another. numpy only; sums in float64. Arguments are keywords: peak and probabilities are
taken from `reference`, and swapping the two changes the figure."""

import math

import numpy as np

# A metric's value must be a JSON number. 200 dB stands for equal to the last bit; what merely comes near stays below.
EXACT_DB = 200.0
_NEARLY_EXACT_DB = 199.9

_PIECE = 1 << 20  # numbers held in float64 at a time
_ROWS = 64  # rows of a (positions, vocabulary) block held in float64 at a time


class Closeness:
    """PSNR and cosine over any number of array pairs, one pair in memory at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.peak = self.square_error = self.dot = self.reference_norm = self.candidate_norm = 0.0

    def add(self, *, reference: np.ndarray, candidate: np.ndarray) -> None:
        """Take in one pair of equal shape. Raises ValueError for different shapes."""
        if reference.shape != candidate.shape:
            raise ValueError(f"candidate has shape {candidate.shape}, the reference {reference.shape}")
        for start in range(0, reference.size, _PIECE):
            r = reference.reshape(-1)[start : start + _PIECE].astype(np.float64)
            c = candidate.reshape(-1)[start : start + _PIECE].astype(np.float64)
            self.count += r.size
            self.peak = max(self.peak, float(np.abs(r).max(initial=0.0)))
            self.square_error += float(np.square(r - c).sum())
            self.dot += float(r @ c)
            self.reference_norm += float(r @ r)
            self.candidate_norm += float(c @ c)

    def psnr_db(self) -> float:
        """20 log10(max |reference|) - 10 log10(mean square error); inf when equal, -inf when the reference is all 0."""
        if self.square_error == 0.0:
            return math.inf
        if self.peak == 0.0:
            return -math.inf
        return 20.0 * math.log10(self.peak) - 10.0 * math.log10(self.square_error / self.count)

    def cosine(self) -> float:
        """Cosine of the angle between the two, all values as one vector; 1 when both are 0, 0 when one is."""
        if self.reference_norm == 0.0 or self.candidate_norm == 0.0:
            return 1.0 if self.reference_norm == self.candidate_norm else 0.0
        return self.dot / math.sqrt(self.reference_norm) / math.sqrt(self.candidate_norm)


def square_errors(*, reference: np.ndarray, candidate: np.ndarray) -> list[float]:
    """What Closeness adds up as its square error, piece by piece."""
    errors = []
    for start in range(0, reference.size, _PIECE):
        difference = reference.reshape(-1)[start : start + _PIECE].astype(np.float64)
        difference -= candidate.reshape(-1)[start : start + _PIECE]
        errors.append(float(np.square(difference, out=difference).sum()))
    return errors


def psnr_db(*, reference: np.ndarray, candidate: np.ndarray) -> float:
    """Peak signal-to-noise ratio in dB over all values, peak = max |reference|; inf when equal."""
    closeness = Closeness()
    closeness.add(reference=reference, candidate=candidate)
    return closeness.psnr_db()


def cosine(*, reference: np.ndarray, candidate: np.ndarray) -> float:
    """Cosine similarity of the two arrays as vectors, -1 to 1."""
    closeness = Closeness()
    closeness.add(reference=reference, candidate=candidate)
    return closeness.cosine()


def recorded_db(value: float) -> float:
    """A PSNR as a JSON number: EXACT_DB for inf, otherwise at most 199.9 (and at least -199.9)."""
    if value == math.inf:
        return EXACT_DB
    return max(-_NEARLY_EXACT_DB, min(value, _NEARLY_EXACT_DB))


def kl_rows(*, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """KL(softmax(reference) || softmax(candidate)) in nats, a row of (rows, classes) logits each -> (rows,)."""
    parts = [
        _kl_block(reference[start : start + _ROWS], candidate[start : start + _ROWS])
        for start in range(0, len(reference), _ROWS)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def _kl_block(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    p, q = _log_softmax(reference), _log_softmax(candidate)
    # Rounding can leave -1e-17 for equal rows; a divergence is never below 0.
    return np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0.0)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def same_top1(*, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
    """Whether the largest class of each row of (rows, classes) is the same -> (rows,) bool."""
    return reference.argmax(axis=-1) == candidate.argmax(axis=-1)


def mean_pool(hidden: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """(S, H) -> (H,) float64: the mean over valid positions, (S,) bool."""
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
    ranks = [_ranks(_similarity(vectors)[upper]) for vectors in (reference, candidate)]
    centred = [values - values.mean() for values in ranks]
    norm = float(np.linalg.norm(centred[0]) * np.linalg.norm(centred[1]))
    return float(centred[0] @ centred[1]) / norm if norm else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Positions in ascending order; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _similarity(vectors: np.ndarray) -> np.ndarray:
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return unit @ unit.T
