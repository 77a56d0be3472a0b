"""Bits for each weight of a mixed recipe, from what each weight's compression costs. Pure functions on plain values.

sensitivity: {"weights": {name: {"elements", "noise": {bits: mean square error of the outputs}}}, "peak", "curve": [...]}

The noise of several compressed weights is taken as the sum of theirs: each is measured with all others whole. The curve
in the same file was measured with all of them compressed, and says how far that holds.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ane_sweep.errors import StageError
from ane_sweep.stats.psnr import decibels

Bits = dict[str, int]


def choose_bits(measured: Path | None, recipe: Mapping[str, Any]) -> Bits:
    """What a mixed recipe gives each weight. Raises StageError when no point of the curve is good enough."""
    assert measured is not None, "tasks.py gives every mixed recipe a calibration"
    found = json.loads((measured / "sensitivity.json").read_text(encoding="utf-8"))
    if recipe["min_psnr_db"] is None:
        return allot_bits(found["weights"], recipe["bits"])
    reached = [point.get("psnr_worst_db", point["psnr_db"]) for point in found["curve"]]
    good = [point for point, db in zip(found["curve"], reached) if db >= recipe["min_psnr_db"]]
    if not good:
        best = max(reached)
        raise StageError(
            f"min_psnr_db={recipe['min_psnr_db']}: the best of candidates={recipe['candidates']} reaches {best:.1f} dB; "
            "ask for less, or give candidates with more bits"
        )
    return min(good, key=lambda point: point["average_bits"])["bits"]


def allot_bits(weights: Mapping[str, Any], average: float) -> Bits:
    """The bits with little noise whose average over all numbers is `average` at most.

    From the widest down along the cheapest steps (noise per bit saved), then up again where there is room. Equal costs
    are settled by name.
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


def compute_average_bits(weights: Mapping[str, Any], bits: Bits) -> float:
    total = sum(entry["elements"] for entry in weights.values())
    return sum(entry["elements"] * bits[name] for name, entry in weights.items()) / total


def estimate_db(weights: Mapping[str, Any], peak: float, bits: Bits) -> float:
    """PSNR if the noises of the weights add up."""
    noise = sum(entry["noise"][str(bits[name])] for name, entry in weights.items())
    return decibels(peak=peak, error=max(noise, 1e-300))
