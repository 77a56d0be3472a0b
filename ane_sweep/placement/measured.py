"""What `ane-sweep calibrate` measured on this machine, put where a chip's terms have no published figure.

Of the Neural Engine the chip table holds what was measured (chips.py); a CPU and a GPU get their two figures where nothing is fitted
of that chip's; a further chunk, 4-bit palettes and the layout of `original` are known of no chip by itself, so they always count.
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
    """Change the terms of a chip by unit; `probes`: what the encoder of `calibrate` asks for in both forms."""
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
    """The rate of products of all heads at once at which one form of the probe takes so many times what the other does."""
    slow, fast = (load_of(probes[form]) for form in ("original", "split_einsum"))
    left = times * ane_ms(fast, ane) - ane_ms(replace(slow, heads=0.0), ane)
    ane["layout_here"] = True
    if left > 0:
        ane["heads_share"] = slow.heads / (left * 1e6) / ane["weight_gbs"]
