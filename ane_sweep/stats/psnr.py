"""Measure how close one array is to another: PSNR and cosine. numpy only; sums in float64.

Arguments are keywords, because swapping the two changes the figure: the peak is taken from `reference`.
"""

import math

import numpy as np

# A metric's value must be a JSON number. 200 dB stands for equal to the last bit; any other PSNR stays below.
EXACT_DB = 200.0
_NEARLY_EXACT_DB = 199.9

_PIECE = 1 << 20  # numbers held in float64 at a time


def decibels(*, peak: float, error: float) -> float:
    """Return 20 log10(peak) - 10 log10(mean square error).

    It is inf without an error, and -inf if either is not finite or the peak is 0.
    """
    if error == 0.0:
        return math.inf
    if peak == 0.0 or not (math.isfinite(peak) and math.isfinite(error)):
        return -math.inf
    return 20.0 * math.log10(peak) - 10.0 * math.log10(error)


class Closeness:
    """PSNR and cosine over any number of array pairs, one pair in memory at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.peak = self.square_error = self.dot = self.reference_norm = self.candidate_norm = 0.0

    def add(self, *, reference: np.ndarray, candidate: np.ndarray) -> None:
        """Add one pair of equal shape. Raises ValueError for different shapes."""
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

    def merge(self, other: "Closeness") -> None:
        """Add all pairs of another Closeness."""
        self.peak = max(self.peak, other.peak)
        for name in ("count", "square_error", "dot", "reference_norm", "candidate_norm"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def psnr_db(self) -> float:
        """Return the PSNR of all pairs together, peak = max |reference|; inf if all pairs are equal, -inf if the reference is all 0."""
        return decibels(peak=self.peak, error=self.square_error and self.square_error / self.count)

    def cosine(self) -> float:
        """Return the cosine of the angle between references and candidates, taken as one vector each; 1 if both are 0, 0 if one is."""
        if self.reference_norm == 0.0 or self.candidate_norm == 0.0:
            return 1.0 if self.reference_norm == self.candidate_norm else 0.0
        return self.dot / math.sqrt(self.reference_norm) / math.sqrt(self.candidate_norm)


class Outputs:
    """The closeness of a program's outputs: each output by its name, and all together."""

    def __init__(self) -> None:
        self.each: dict[str, Closeness] = {}

    def add(self, name: str, *, reference: np.ndarray, candidate: np.ndarray) -> None:
        """Add one pair of an output's arrays. Raises ValueError for different shapes."""
        self.each.setdefault(name, Closeness()).add(reference=reference, candidate=candidate)

    def together(self) -> Closeness:
        """Return the closeness of all outputs as one array, whose peak is the largest value of any output."""
        whole = Closeness()
        for one in self.each.values():
            whole.merge(one)
        return whole

    def figures(self) -> dict[str, float]:
        """Return psnr_db and cosine of all outputs together, and psnr_worst_db if there are several; {} without outputs."""
        if not self.each:
            return {}
        whole = self.together()
        found = {"psnr_db": recorded_db(whole.psnr_db()), "cosine": whole.cosine()}
        worst = min(recorded_db(one.psnr_db()) for one in self.each.values())
        return found | ({"psnr_worst_db": worst} if len(self.each) > 1 else {})

    def by_name(self) -> dict[str, dict[str, float]]:
        """Return psnr_db and cosine of each output."""
        return {key: {"psnr_db": recorded_db(one.psnr_db()), "cosine": one.cosine()} for key, one in self.each.items()}


def square_errors(*, reference: np.ndarray, candidate: np.ndarray) -> list[float]:
    """Return the parts of the square error, piece by piece, for Closeness to add up."""
    errors = []
    for start in range(0, reference.size, _PIECE):
        difference = reference.reshape(-1)[start : start + _PIECE].astype(np.float64)
        difference -= candidate.reshape(-1)[start : start + _PIECE]
        errors.append(float(np.square(difference, out=difference).sum()))
    return errors


def psnr_db(*, reference: np.ndarray, candidate: np.ndarray) -> float:
    """Return the peak signal-to-noise ratio in dB over all values, peak = max |reference|; inf when equal."""
    closeness = Closeness()
    closeness.add(reference=reference, candidate=candidate)
    return closeness.psnr_db()


def recorded_db(value: float) -> float:
    """Return a PSNR as a JSON number: EXACT_DB for inf, otherwise at most 199.9 (and at least -199.9)."""
    if value == math.inf:
        return EXACT_DB
    return max(-_NEARLY_EXACT_DB, min(value, _NEARLY_EXACT_DB))
