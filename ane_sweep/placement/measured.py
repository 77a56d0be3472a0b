"""Use of this machine's measurements (`ane-sweep calibrate`) for terms of a chip that have no published figure.

The chip table already holds the Neural Engine's measured rates (chips.py). A CPU and a GPU get their two figures if none are fitted
for that chip. No chip has published figures for a further chunk, 4-bit palettes and the layout of `original`, so measured ones
always count.
"""

from dataclasses import replace
from typing import Any

from ane_sweep.placement import here
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.formulas import ane_ms
from ane_sweep.placement.work import load_of

_CHUNK, _PALETTES, _LAYOUT = "chunk_ms", "palette4_gbs", "original_over_split_einsum"
_UNITS = {"cpu_only": "cpu", "cpu_and_gpu": "gpu"}


def put(terms: dict[str, dict[str, Any]], chip: Chip, probes: dict[str, dict[str, float]]) -> None:
    """Change the terms of a chip by unit; `probes`: amounts of work of calibrate's encoder in both forms."""
    rows = {
        (row.units, row.quantity): row.value
        for row in here.find_rows(chip.chip)
        if row.kind == here.KIND and row.value > 0
    }
    if not rows:
        return
    ane = terms["ane"]
    if "HERE" in chip.sources and ("cpu_and_ne", "fp16_tflops") in rows:
        ane |= {"tflops": chip.fp16_tflops, "here": True}
    for name in (_CHUNK, _PALETTES):
        if (value := rows.get(("cpu_and_ne", name))) is not None:
            ane[name] = value
    for units, unit in _UNITS.items():
        both = {
            name: rows.get((units, quantity))
            for name, quantity in (("tflops", "fp16_tflops"), ("dispatch_ms", "dispatch_ms"))
        }
        if terms[unit]["tflops"] is None and None not in both.values():
            terms[unit] |= {**both, "here": True}
    if (times := rows.get(("cpu_and_ne", _LAYOUT))) is not None and ane["tflops"] is not None:
        _layout(ane, times, probes)


def _layout(ane: dict[str, Any], times: float, probes: dict[str, dict[str, float]]) -> None:
    """Set the rate of products over all heads at once so that the estimated times of the two forms have the measured ratio."""
    slow, fast = (load_of(probes[form]) for form in ("original", "split_einsum"))
    left = times * ane_ms(fast, ane) - ane_ms(replace(slow, heads=0.0), ane)
    ane["layout_here"] = True
    if left > 0:
        ane["heads_share"] = slow.heads / (left * 1e6) / ane["weight_gbs"]
