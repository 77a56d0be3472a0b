"""Milliseconds of one program on one unit: amounts (work.py) times rates (latency.py). Arrays compute many programs at once.

Neural Engine  t = dispatch + max(FLOP / P, weights / S) + spilled / (m * S) + moved / n + heads / (l * S) + fp32 in and out / c
               + tasks * o of each chunk, + a cost of each hand-over, + 0.125 ms for each change of unit; weights are read ahead
               while products run
GPU            t = dispatch + (FLOP + f * products head by head) / P + spilled / m + ops * o
CPU            t = FLOP / P + weights / S + heads / l + fp32 in and out / c + ops * o
"""

from typing import Any

from ane_sweep.placement.work import Load

Terms = dict[str, Any]


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
    return ms + load.wide_io / (terms["wide_io_gbs"] * 1e6) + load.tasks * terms["task_us"] * 1e-3


def gpu_ms(load: Load, terms: Terms) -> float:
    """Return the milliseconds that one chunk takes on the GPU, whose memory rate is given per TFLOP/s: both grow with the cores."""
    per_ms: float = terms["tflops"] * 1e9
    ms: float = terms["dispatch_ms"] + (load.flop + terms["head_factor"] * load.head_flop) / per_ms
    return ms + load.spilled * terms["flop_per_byte"] / per_ms + load.ops * terms["op_us"] * 1e-3


def cpu_ms(load: Load, terms: Terms) -> float:
    if terms.get("weight_gbs") is None:  # measured here: products and what a call costs
        alone: float = terms["dispatch_ms"] + load.flop / (terms["tflops"] * 1e9)
        return alone
    ms: float = load.flop / (terms["tflops"] * 1e9) + load.weights / (terms["weight_gbs"] * 1e6)
    ms += load.heads / (terms["heads_gbs"] * 1e6) + load.wide_io / (terms["wide_io_gbs"] * 1e6)
    return ms + load.ops * terms["op_us"] * 1e-3
