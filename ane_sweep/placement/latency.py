"""A latency estimate per chip and unit. Always of kind "estimated", always with its anchor and band.

The sums are in formulas.py, the amounts in work.py. Bytes a second and dispatch of a Neural Engine are the chip's own
(data/chips.json), its FLOP a second its family's; a GPU's FLOP a second and all of a CPU are the chip's; the rest is shared. All but the
chip table is fitted to published figures (data/latency.json, `python -m tests.proof.placement.score --fit`); measured.py adds this
machine's own measurements. A chip without figures of the unit in question has no estimate; another chip's number never stands in.
Bands hold nine in ten published rows whose table had part neither in the fit nor in the band.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from ane_sweep.placement import measured
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.formulas import Terms, ane_ms, cpu_ms, gpu_ms
from ane_sweep.placement.path import SWITCH_MS
from ane_sweep.placement.work import Work

TERMS_FILE = Path(__file__).parent / "data" / "latency.json"
GUESSED = 2.0  # times as far either way where the figures say nothing: flexible sizes, the planner's prices. A guess
PLANNED_CPU = "m4"  # the chip of whose CPU there are no latencies, but its planner's prices (costs.py)
MOSTLY, LEFT_OUT = (
    0.5,
    0.2,
)  # shares of the CPU: above the first it is a program of the CPU; up to the second it may be left out
UNIT_OF = {"cpu_only": "cpu", "cpu_and_gpu": "gpu", "cpu_and_ne": "ane", "all": "ane"}


@dataclass(frozen=True)
class Estimate:
    """Milliseconds for one predict, with the band and the words that must be printed with it."""

    ms: float
    low_ms: float
    high_ms: float
    anchor: str
    confidence: str


@cache
def fitted() -> Terms:
    content: Terms = json.loads(TERMS_FILE.read_text(encoding="utf-8"))
    return content


def of_chip(chip: Chip, terms: Terms | None = None) -> Terms:
    """Return the terms of a chip by unit: the fitted ones, and this machine's measurements for those that are missing."""
    terms = fitted() if terms is None else terms
    found = {unit: flat(terms[unit], chip.chip if unit != "ane" else chip.family) for unit in ("ane", "gpu", "cpu")}
    found["ane"] |= {
        "weight_gbs": chip.weight_gbs,
        "dispatch_ms": chip.dispatch_ms,
        "resident_bytes": chip.resident_bytes,
    }
    if chip.chip not in terms["ane"]["chips"]:
        found["ane"]["tflops"] = None
    measured.put(found, chip, terms["probes"])
    return found


def flat(terms: Terms, name: str) -> Terms:
    """Return shared terms, and of those that differ by chip or family the value for `name`, or None without one."""
    return {key: value.get(name) if isinstance(value, dict) else value for key, value in terms.items()}


def missing(chunks: Sequence[Work], chip: Chip) -> str | None:
    """Return the reason why a program cannot be estimated on this chip, or None if it can."""
    terms, name = of_chip(chip), chip.chip
    on_ane, on_gpu = (any(getattr(work, unit).ops for work in chunks) for unit in ("ane", "gpu"))
    if on_ane and on_gpu:
        return f"{name}: it is predicted for Neural Engine and GPU together, and nobody has published what that costs"
    if on_gpu and terms["gpu"]["tflops"] is None:
        return f"{name}: part of it is predicted for the GPU, and {_figures('gpu', terms)}"
    if on_ane and terms["ane"]["tflops"] is None:
        return f"{name}: nobody has published what a program takes on its Neural Engine; `ane-sweep calibrate run` on one would tell"
    share = cpu_share(chunks)
    if share > (LEFT_OUT if on_ane or on_gpu else 0.0) and not has_cpu(chip, terms):
        return f"{name}: {share:.0%} of its time would be on the CPU, and {_figures('cpu', terms)}"
    return None


def has_cpu(chip: Chip, terms: Terms) -> bool:
    return chip.chip == PLANNED_CPU or _prices_cpu(terms)


def _prices_cpu(terms: Terms) -> bool:
    """Return True if the CPU has figures: fitted ones, or both of those that are measured here."""
    cpu = terms["cpu"]
    return cpu["tflops"] is not None and (cpu["weight_gbs"] is not None or cpu.get("dispatch_ms") is not None)


def _figures(unit: str, terms: Terms) -> str:
    known = sorted(fitted()[unit]["tflops"])
    if unit == "cpu":
        known = sorted({*known, PLANNED_CPU})
    return f"of {unit.upper()}s only {', '.join(known)} have figures here; `ane-sweep calibrate run` on that chip would give its own"


def cpu_share(chunks: Sequence[Work]) -> float:
    """Return the CPU's share of the planner's price of the program, without the cost of chunks and switches."""
    cpu, other = sum(work.cpu_ms for work in chunks), sum(work.ane_ms for work in chunks)
    return cpu / (cpu + other) if cpu else 0.0


def estimate(chunks: Sequence[Work], chip: Chip, is_flexible: bool = False, terms: Terms | None = None) -> Estimate:
    """Return the latency estimate with its band. Raises TypeError if `missing` gives a reason against it."""
    found = of_chip(chip, terms)
    unit = main_unit(chunks)
    planned = unit == "cpu" and not _prices_cpu(found)
    ms = total_ms(chunks, chip, found)
    low, high = _band(unit, terms)
    wider = GUESSED if is_flexible or planned else 1.0
    return Estimate(ms, ms * low / wider, ms * high * wider, _anchor(chunks, chip, found, unit), "low")


def _band(unit: str, terms: Terms | None) -> tuple[float, float]:
    band = (fitted() if terms is None else terms)["bands"][unit]
    return band["low"], band["high"]


def main_unit(chunks: Sequence[Work]) -> str:
    for unit in ("gpu", "ane"):
        if any(getattr(work, unit).ops for work in chunks):
            return unit
    return "cpu"


def total_ms(chunks: Sequence[Work], chip: Chip, terms: Terms) -> float:
    """Return the milliseconds of all chunks in sequence; each hand-over from or to the Neural Engine adds a cost."""
    ms = 0.0
    for work in chunks:
        ms += SWITCH_MS * work.transitions
        if work.ane.ops:
            ms += ane_ms(work.ane, terms["ane"])
        if work.gpu.ops:
            ms += gpu_ms(work.gpu, terms["gpu"])
        if _prices_cpu(terms):
            ms += cpu_ms(work.cpu, terms["cpu"]) if work.cpu_ops else 0.0
        elif chip.chip == PLANNED_CPU:
            ms += work.cpu_ms
    handed = sum(1 for before, after in pairwise(chunks) if before.ane.ops or after.ane.ops)
    return ms + float(terms["ane"]["chunk_ms"]) * handed


def _anchor(chunks: Sequence[Work], chip: Chip, terms: Terms, unit: str) -> str:
    """Describe the basis of an estimate: the rates of the units in use, and how many published figures they come from."""
    found, rows = [], fitted()["rows"]
    if unit == "ane":
        ane = terms["ane"]
        found.append(
            f"{ane['tflops']:.3g} TFLOP/s, weights at {ane['weight_gbs']:g} GB/s, {ane['dispatch_ms']:g} ms dispatch "
            f"({'measured here; ' if ane.get('here') else ''}{rows['ane']} published figures, "
            f"{fitted()['ane']['chips'].get(chip.chip, 0)} of this chip; {', '.join(chip.sources)})"
        )
    if unit == "gpu":
        gpu = terms["gpu"]
        found.append(
            f"{gpu['tflops']:.3g} TFLOP/s of its GPU ({'measured here; ' if gpu.get('here') else ''}{rows['gpu']} published figures)"
        )
    count = sum(work.cpu_ops for work in chunks)
    if count and _prices_cpu(terms):
        found.append(f"{count} ops on its CPU at {terms['cpu']['tflops']:.3g} TFLOP/s")
    elif count and chip.chip == PLANNED_CPU:
        found.append(
            f"{sum(work.cpu_ms for work in chunks):.2g} ms on the CPU at the prices of Core ML's planner on an M4 (751K)"
        )
    elif count:
        found.append(f"{count} ops on the CPU left out, of which there are no figures")
    return f"{chip.chip}: {'; '.join(found) or 'nothing to compute'}"
