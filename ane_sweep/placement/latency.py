"""A latency estimate per chip and unit. Always of kind "estimated", always with its anchor and band.

Amounts (work.py) times rates, of one program on one unit; with arrays in place of numbers, of many programs at once:

Neural Engine  t = dispatch + max(FLOP / P, weights / S) + spilled / (m * S) + moved / n + heads / (l * S) + fp32 in and out / c
               + tasks * o of each chunk, + a cost of each hand-over, + 0.125 ms for each change of unit; weights are read ahead
               while products run
GPU            t = dispatch + (FLOP + f * products head by head) / P + spilled / m + ops * o
CPU            t = FLOP / P + weights / S + heads / l + fp32 in and out / c + ops * o

For a Neural Engine, bytes per second and dispatch are per chip (data/chips.json), FLOP per second per family; FLOP per
second of a GPU and all terms of a CPU are per chip; all chips share the rest. All but the chip table is fitted to published
figures (data/latency.json, `python -m tests.proof.placement.score --fit`). A chip's own measurements (`Chip.measured`)
fill the gaps. No chip has published figures for a further chunk, 4-bit palettes and the layout of `original`, so
measured ones always count there. A chip without figures of the unit in question has no estimate: another chip's number
is never used instead. Bands contain nine in ten published rows of tables that were used neither for the fit nor for the
band.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ane_sweep.placement.chips import Chip
from ane_sweep.placement.path import SWITCH_MS
from ane_sweep.placement.sites import Site
from ane_sweep.placement.work import Load, Work, load_of

TERMS_FILE = Path(__file__).parent / "data" / "latency.json"
GUESSED = 2.0  # times as far either way where the figures say nothing: flexible sizes, the planner's prices. A guess
PLANNED_CPU = "m4"  # the chip of whose CPU there are no latencies, but its planner's prices (costs.py)
LEFT_OUT = 0.2  # share of the time on a CPU without figures that an estimate may leave out
VOCABULARY_ABOVE = 16_384  # channels that a convolution makes
_CONTROL = ("while_loop", "cond")
_MASKS = ("add", "select", "mul", "sub")
Terms = dict[str, Any]  # of latency.json, or of one unit for one chip: numbers, or arrays of many programs
UNIT_OF = {"cpu_only": "cpu", "cpu_and_gpu": "gpu", "cpu_and_ne": "ane", "all": "ane"}


@dataclass(frozen=True)
class Estimate:
    """The estimated milliseconds of one prediction, with the band and the words to print with it.

    hand_over_ms  the part of `ms` that hand-overs between chunks cost
    """

    ms: float
    low_ms: float
    high_ms: float
    anchor: str
    confidence: str
    hand_over_ms: float = 0.0


@cache
def fitted() -> Terms:
    content: Terms = json.loads(TERMS_FILE.read_text(encoding="utf-8"))
    return content


def of_chip(chip: Chip, terms: Terms | None = None) -> Terms:
    """Return a chip's terms by unit: the fitted ones, completed by measurements on this machine."""
    terms = fitted() if terms is None else terms
    found = {unit: flat(terms[unit], chip.chip if unit != "ane" else chip.family) for unit in ("ane", "gpu", "cpu")}
    found["ane"] |= {name: getattr(chip, name) for name in ("weight_gbs", "dispatch_ms", "resident_bytes")}
    if chip.chip not in terms["ane"]["chips"]:
        found["ane"]["tflops"] = chip.ane_tflops
    _take_in(found, chip, terms["probes"])
    return found


def flat(terms: Terms, name: str) -> Terms:
    """Return the terms for `name`: shared terms, and the value of those that differ by chip or family; None without one."""
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
    cpu, other = sum(work.cpu_ms for work in chunks), sum(work.ane_ms for work in chunks)
    share = cpu / (cpu + other) if cpu else 0.0  # of the ops' planner cost, without launch and switch costs
    if share > (LEFT_OUT if on_ane or on_gpu else 0.0) and chip.chip != PLANNED_CPU and not _prices_cpu(terms):
        return f"{name}: {share:.0%} of its time would be on the CPU, and {_figures('cpu', terms)}"
    return None


def _prices_cpu(terms: Terms) -> bool:
    """Return True if the CPU has figures: fitted ones, or both figures that calibration measures."""
    cpu = terms["cpu"]
    return cpu["tflops"] is not None and (cpu["weight_gbs"] is not None or cpu.get("dispatch_ms") is not None)


def _figures(unit: str, terms: Terms) -> str:
    known = sorted({*fitted()[unit]["tflops"], *([PLANNED_CPU] if unit == "cpu" else [])})
    return f"of {unit.upper()}s only {', '.join(known)} have figures here; `ane-sweep calibrate run` on that chip would give its own"


def estimate(chunks: Sequence[Work], chip: Chip, is_flexible: bool = False, terms: Terms | None = None) -> Estimate:
    """Return the latency estimate with its band. Raises TypeError if `missing` gives a reason against it."""
    found = of_chip(chip, terms)
    unit = next((unit for unit in ("gpu", "ane") if any(getattr(work, unit).ops for work in chunks)), "cpu")
    planned = unit == "cpu" and not _prices_cpu(found)
    ms = total_ms(chunks, chip, found)
    band = (fitted() if terms is None else terms)["bands"][unit]
    wider = GUESSED if is_flexible or planned else 1.0
    anchor, handed = _anchor(chunks, chip, found, unit), hand_over_ms(chunks, found)
    return Estimate(ms, ms * band["low"] / wider, ms * band["high"] * wider, anchor, "low", handed)


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
    return ms + hand_over_ms(chunks, terms)


def hand_over_ms(chunks: Sequence[Work], terms: Terms) -> float:
    """Return the milliseconds of all hand-overs from or to the Neural Engine between chunks."""
    handed = sum(1 for before, after in pairwise(chunks) if before.ane.ops or after.ane.ops)
    return float(terms["ane"]["chunk_ms"]) * handed


def _anchor(chunks: Sequence[Work], chip: Chip, terms: Terms, unit: str) -> str:
    """Describe the basis of an estimate: the rates of the units in use, and how many published figures they come from."""
    found, its = [], terms[unit]
    rest = f"{'measured here; ' if its.get('here') else ''}{fitted()['rows'][unit]} published figures"
    if unit == "ane":
        found.append(
            f"{its['tflops']:.3g} TFLOP/s, weights at {its['weight_gbs']:g} GB/s, {its['dispatch_ms']:g} ms dispatch "
            f"({rest}, {fitted()['ane']['chips'].get(chip.chip, 0)} of this chip; {', '.join(chip.sources)})"
        )
    if unit == "gpu":
        found.append(f"{its['tflops']:.3g} TFLOP/s of its GPU ({rest})")
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


def ane_ms(load: Load, terms: Terms) -> float:
    """Return the milliseconds that one chunk takes on the Neural Engine."""
    streamed = load.weights * (load.weights > terms["resident_bytes"])
    if palettes := terms.get("palette4_gbs"):  # measured here, per byte of fp16: four times what is stored
        streamed += (streamed > 0) * load.palettes * (4 * terms["weight_gbs"] / palettes - 1)
    products = load.flop / (terms["tflops"] * 1e9)
    read = (streamed + (terms["notch"] - 1) * load.notched) / (terms["weight_gbs"] * 1e6)
    ms: float = terms["dispatch_ms"] + products + (read - products) * (read > products)  # the longer of the two
    memory: float = terms["weight_gbs"] * 1e6
    ms += load.spilled / (terms["spill_share"] * memory) + load.heads / (terms["heads_share"] * memory)
    ms += load.moved / (terms["moved_gbs"] * 1e6)
    ms += load.wide_io / (terms["wide_io_gbs"] * 1e6)
    ms += load.tasks * terms["task_us"] * 1e-3
    return ms


def gpu_ms(load: Load, terms: Terms) -> float:
    """Return the milliseconds that one chunk takes on the GPU, whose memory rate is given per TFLOP/s: both grow with the cores."""
    per_ms: float = terms["tflops"] * 1e9
    ms: float = terms["dispatch_ms"] + (load.flop + terms["head_factor"] * load.head_flop) / per_ms
    ms += load.spilled * terms["flop_per_byte"] / per_ms
    ms += load.ops * terms["op_us"] * 1e-3
    return ms


def cpu_ms(load: Load, terms: Terms) -> float:
    products: float = load.flop / (terms["tflops"] * 1e9)
    if terms.get("weight_gbs") is None:  # measured here: products and what a call costs
        dispatch: float = terms["dispatch_ms"]
        return dispatch + products
    ms: float = products + load.weights / (terms["weight_gbs"] * 1e6)
    ms += load.heads / (terms["heads_gbs"] * 1e6) + load.wide_io / (terms["wide_io_gbs"] * 1e6)
    ms += load.ops * terms["op_us"] * 1e-3
    return ms


def _take_in(terms: Terms, chip: Chip, probes: dict[str, dict[str, float]]) -> None:
    """Add a chip's measurements to its terms by unit; `probes`: amounts of work of the nets that calibration timed."""
    rows = {(one.units, one.quantity): one.value for one in chip.measured}
    ane = terms["ane"]
    if "HERE" in chip.sources and ("cpu_and_ne", "fp16_tflops") in rows:
        ane |= {"tflops": chip.fp16_tflops, "here": True}
    ane |= {name: rows["cpu_and_ne", name] for name in ("chunk_ms", "palette4_gbs") if ("cpu_and_ne", name) in rows}
    for units, unit in (("cpu_only", "cpu"), ("cpu_and_gpu", "gpu")):
        tflops, dispatch = rows.get((units, "fp16_tflops")), rows.get((units, "dispatch_ms"))
        if terms[unit]["tflops"] is None and tflops is not None and dispatch is not None:
            terms[unit] |= {"tflops": tflops, "dispatch_ms": dispatch, "here": True}
    times = rows.get(("cpu_and_ne", "original_over_split_einsum"))
    if times is None or ane["tflops"] is None:
        return
    # The rate of products over all heads at once follows from the measured ratio of the two forms' times
    slow, fast = (load_of(probes[form]) for form in ("original", "split_einsum"))
    left = times * ane_ms(fast, ane) - ane_ms(replace(slow, heads=0.0), ane)
    ane["layout_here"] = True
    if left > 0:
        ane["heads_share"] = slow.heads / (left * 1e6) / ane["weight_gbs"]


def explain_withholding(
    sites: Sequence[Site], units: Sequence[str], chip: Chip, has_layout: bool = False
) -> str | None:
    """Return why terms that would give an estimate do not hold: a loop or branch, or published figures that contradict them
    for a program on the Neural Engine; None if they hold.

    `has_layout`: the cost of attention over all heads at once was measured on this machine.
    """
    if control := sorted({site.type for site in sites if site.type in _CONTROL}):
        return (
            f"{chip.chip}: it has a loop or branch ({', '.join(control)}), and how often the ops in it run is not known"
        )
    there = [site for site, unit in zip(sites, units, strict=True) if unit == "ane"]
    if chip.generation < 16 and any(_is_wide_head(site) for site in there):
        return (
            f"{chip.chip}: a convolution that makes more than {VOCABULARY_ABOVE:,} channels for many tokens: on an M1 Max GPT-2 of this "
            "form took 519 ms, of which its other terms explain 32, and one of 18 M parameters 157 against 7 without its head "
            "(more-ane-transformers); select the last token before it, or cut it into pieces"
        )
    if chip.generation == 13 and not has_layout and _masks_all_heads(there):
        return (
            f"{chip.chip}: attention of all heads at once whose mask is computed from an input: DistilBERT of this form took 55 ms on an "
            "M1 Max with 15 % of its ops on the CPU, 8.7 in the Neural Engine's form, and 56 against 4.4 on an M1; which ops those "
            "were is not published"
        )
    return None


def _is_wide_head(site: Site) -> bool:
    if site.type != "conv" or not site.outputs:
        return False
    shape = [size or 1 for size in site.outputs[0].shape]
    return len(shape) > 2 and shape[1] > VOCABULARY_ABOVE and site.outputs[0].elements > shape[0] * shape[1]


def _masks_all_heads(sites: Sequence[Site]) -> bool:
    """Return True if a softmax over the scores of several heads reads scores with a computed mask."""
    of_heads = [site for site in sites if site.outputs and site.outputs[0].rank == 4]
    masked = {id(site.outputs[0]) for site in of_heads if site.type in _MASKS and len(site.data) > 1}
    return any(
        min(size or 1 for size in site.outputs[0].shape[1:3]) > 1 and any(id(tensor) in masked for tensor in site.data)
        for site in of_heads  # (B, H, S, S); head by head it is (B, S, 1, S)
        if site.type == "softmax"
    )
