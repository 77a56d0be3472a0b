"""Chooses the bits of each weight of a mixed recipe, by the error that compressing it causes.

The noise of several compressed weights is estimated as the sum of single noises, each measured with all others
uncompressed. The curve in the same file (sensitivity.py writes both) was measured with all of them compressed, and
shows how good this estimate is.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from ane_sweep.errors import StageError
from ane_sweep.stats.psnr import decibels

Bits = dict[str, int]


class WeightNoise(TypedDict):
    """One weight: its count of numbers, and the mean square error of the outputs by width in bits (as text)."""

    elements: int
    noise: dict[str, float]


class Point(TypedDict):
    """One point of the curve of PSNR against size, with the bits of each weight."""

    average_bits: float
    bytes: int
    psnr_db: float
    psnr_worst_db: NotRequired[float]  # of a program with several outputs
    expected_db: float
    bits: Bits


def choose_bits(measured: Path | None, recipe: Mapping[str, Any]) -> Bits:
    """Return the bits that a mixed recipe gives each weight. Raises StageError if no point of the curve is good enough."""
    assert measured is not None, "tasks.py gives every mixed recipe a calibration"
    found = json.loads((measured / "sensitivity.json").read_text(encoding="utf-8"))
    if recipe["min_psnr_db"] is None:
        return allot_bits(found["weights"], recipe["bits"])
    points: list[Point] = found["curve"]
    reached = [point.get("psnr_worst_db", point["psnr_db"]) for point in points]
    good = [point for point, db in zip(points, reached) if db >= recipe["min_psnr_db"]]
    if not good:
        best = max(reached)
        raise StageError(
            f"min_psnr_db={recipe['min_psnr_db']}: the best of candidates={recipe['candidates']} reaches {best:.1f} dB; "
            "ask for less, or give candidates with more bits"
        )
    return min(good, key=lambda point: point["average_bits"])["bits"]


def allot_bits(weights: Mapping[str, WeightNoise], average: float) -> Bits:
    """Return bits for each weight with little noise and an average over all numbers of at most `average`.

    The search starts at the widest bits, goes down along the cheapest steps (noise per bit saved), then up again while
    the average allows. Of equal costs the first name wins.
    """
    noise = {name: {int(b): value for b, value in entry["noise"].items()} for name, entry in weights.items()}
    size = {name: entry["elements"] for name, entry in weights.items()}
    bits = {name: max(noise[name]) for name in sorted(weights)}
    room = average * sum(size.values())

    def cost(name: str, to: int) -> float:
        return (noise[name][to] - noise[name][bits[name]]) / (size[name] * abs(bits[name] - to))

    def used() -> int:
        return sum(size[name] * bits[name] for name in bits)

    while used() > room:
        steps = [(cost(name, to), name, to) for name in bits for to in noise[name] if to < bits[name]]
        if not steps:
            break
        _, name, to = min(steps)
        bits[name] = to
    while True:
        free = room - used()
        ups = [(cost(n, to), n, to) for n in bits for to in noise[n] if 0 < (to - bits[n]) * size[n] <= free]
        if not ups or min(ups)[0] >= 0:
            return bits
        _, name, to = min(ups)
        bits[name] = to


def compute_average_bits(weights: Mapping[str, WeightNoise], bits: Bits) -> float:
    total = sum(entry["elements"] for entry in weights.values())
    return sum(entry["elements"] * bits[name] for name, entry in weights.items()) / total


def estimate_db(weights: Mapping[str, WeightNoise], peak: float, bits: Bits) -> float:
    """Return the PSNR in dB if the noises of the weights add."""
    noise = sum(entry["noise"][str(bits[name])] for name, entry in weights.items())
    return decibels(peak=peak, error=max(noise, 1e-300))
