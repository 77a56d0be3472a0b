"""Estimated time of an op on CPU and ANE in ms, as Core ML's planner on an M4 estimates it. It is not a latency."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep.placement import laws
from ane_sweep.placement.sites import Site

RATES_FILE = Path(__file__).parent / "data" / "m4" / "rates.json"
Rates = dict[str, float]  # "class/regime/unit" -> work per ms (bytes or FLOP)


@cache
def fitted() -> Rates:
    """Return the rates shipped with the package; `python -m tests.proof.placement.score --fit` writes them."""
    content: dict[str, Any] = json.loads(RATES_FILE.read_text(encoding="utf-8"))
    return content["rates"]


def estimate_ms(site: Site, unit: str, rates: Rates | None = None) -> float:
    """Return the planner's estimate in ms on "cpu" or "ane".

    If a regime was never observed on that unit, the other unit's rate is scaled by the ratio of the class's other
    regimes, else of memory-bound ops (1.2). If no rate can be derived, the op is priced as memory-bound.
    """
    rates = fitted() if rates is None else rates
    kind, regime = laws.op_class(site), laws.regime(site)
    rate = rates.get(f"{kind}/{regime}/{unit}") or find_rate(rates, kind, regime, unit)
    if rate is None:
        kind, regime = laws.MEMORY, "all"
        moved = sum(t.bytes for t in site.data) + (site.outputs[0].bytes if site.outputs else 0)
        return moved / (find_rate(rates, kind, regime, unit) or 60e6)
    return laws.work(site, unit) / rate


def find_rate(rates: Rates, kind: str, regime: str, unit: str) -> float | None:
    """Return the rate of a regime, derived from related regimes if it was never observed, or None for an unknown class."""
    if (rate := rates.get(f"{kind}/{regime}/{unit}")) is not None:
        return rate
    other = laws.CPU if unit == laws.ANE else laws.ANE
    mine = {
        key.split("/")[1]: value for key, value in rates.items() if key.startswith(f"{kind}/") and key.endswith(unit)
    }
    theirs = {
        key.split("/")[1]: value for key, value in rates.items() if key.startswith(f"{kind}/") and key.endswith(other)
    }
    if regime in theirs and kind != "matmul":
        both = [mine[name] / theirs[name] for name in mine if name in theirs]
        memory = rates.get(f"memory/all/{unit}", 1.0) / rates.get(f"memory/all/{other}", 1.0)
        return theirs[regime] * (sum(both) / len(both) if both else memory)
    if mine:
        return sorted(mine.values())[len(mine) // 2]
    return None
