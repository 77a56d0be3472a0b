"""A latency estimate per chip: a roofline with floors. Always of kind "estimated", always with its anchor and band.

    t = sum over chunks of [dispatch + max(FLOP / peak, weight bytes / streaming rate)]
        + 1.6 ms for each chunk after the first + what is planned on the CPU + 0.125 ms for each change of unit

Peak is what large matrix products reach on that ANE, the streaming rate is that of a big vocabulary projection through
Core ML (data/chips.json); weights that stay on the chip between calls (Chip.resident_bytes; seen on the A16 alone) are
not streamed. The per-chunk cost is from one model on an M4 Max (11 to 4 chunks, ane-book journal). The CPU
part is the M4 planner's own estimate: no other chip's CPU, and no chip's GPU, has figures here, so what is mostly there is
not estimated under another name. The band is the spread over published figures (score.py), not a confidence interval of
anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ane_sweep.placement import laws
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.path import SWITCH_MS
from ane_sweep.placement.sites import Site

CHUNK_MS = 1.6
_CPU_BYTES_PER_MS = 6.1e7
BAND = (0.6, 2.8)  # nine in ten of 81 published figures lie within these times the estimate: see METHOD.md
GUESSED = 2.0  # times as far either way where those figures say nothing: flexible sizes, the CPU's prices. A guess
CPU_CHIP = "m4"  # the one whose CPU has figures: its planner's prices (costs.py)
MOSTLY = 0.5


@dataclass(frozen=True)
class Estimate:
    """Milliseconds for one predict, with the band and the words that must be printed with it."""

    ms: float
    low_ms: float
    high_ms: float
    anchor: str
    confidence: str


@dataclass
class Work:
    """What one chunk asks of the ANE and the CPU."""

    ane_flop: float = 0.0
    ane_weight_bytes: int = 0
    cpu_ms: float = 0.0
    transitions: int = 0
    on_ane: bool = False
    on_gpu: bool = False


def work_of(sites: Sequence[Site], units: Sequence[str], cpu_ms: Sequence[float], transitions: int) -> Work:
    """Sum up a chunk; weights used by several ops count once."""
    work = Work(transitions=transitions)
    seen: set[int] = set()
    for site, unit, ms in zip(sites, units, cpu_ms, strict=True):
        if unit != "ane":
            work.on_gpu |= unit == "gpu"
            work.cpu_ms += lookup_ms(site) if site.type == "gather" else ms
            continue
        work.on_ane = True
        work.ane_flop += laws.flop(site)
        for tensor in site.constants:
            if tensor.elements > 16 and id(tensor) not in seen:
                seen.add(id(tensor))
                work.ane_weight_bytes += tensor.bytes if tensor.stored_bytes is None else tensor.stored_bytes
    return work


def lookup_ms(site: Site) -> float:
    """A lookup reads the rows it takes; the planner's estimate counts the whole table."""
    return 2 * sum(tensor.bytes for tensor in site.outputs) / _CPU_BYTES_PER_MS


def missing(chunks: Sequence[Work], chip: Chip) -> str | None:
    """Why there is no estimate under this chip's name, None where there is one."""
    if any(work.on_gpu for work in chunks):
        return f"{chip.chip}: part of it is predicted for the GPU, and no chip's GPU has figures here"
    share = _cpu_share(chunks, chip)
    if share > MOSTLY and chip.chip != CPU_CHIP:
        return f"{chip.chip}: {share:.0%} of its time would be on the CPU, and only {CPU_CHIP}'s has figures here"
    return None


def estimate(chunks: Sequence[Work], chip: Chip, is_flexible: bool = False) -> Estimate:
    """The roofline. Compressed weights count compressed, which is what later families stream."""
    ms = _total_ms(chunks, chip)
    wider = GUESSED if is_flexible or _cpu_share(chunks, chip) > MOSTLY else 1.0
    return Estimate(ms, ms * BAND[0] / wider, ms * BAND[1] * wider, _anchor(chunks, chip), "low")


def _total_ms(chunks: Sequence[Work], chip: Chip) -> float:
    ms = CHUNK_MS * (len(chunks) - 1)
    for work in chunks:
        ms += work.cpu_ms + SWITCH_MS * work.transitions
        if work.on_ane:
            streamed = work.ane_weight_bytes if work.ane_weight_bytes > chip.resident_bytes else 0
            ms += chip.dispatch_ms + max(work.ane_flop / (chip.fp16_tflops * 1e9), streamed / (chip.weight_gbs * 1e6))
    return ms


def _cpu_share(chunks: Sequence[Work], chip: Chip) -> float:
    cpu_ms = sum(work.cpu_ms for work in chunks)
    return cpu_ms / _total_ms(chunks, chip) if cpu_ms else 0.0


def _anchor(chunks: Sequence[Work], chip: Chip) -> str:
    """What the figure rests on: the rates of the units that it is about."""
    found = []
    if any(work.on_ane for work in chunks):
        found.append(
            f"{chip.fp16_tflops:g} TFLOP/s, weights at {chip.weight_gbs:g} GB/s, {chip.dispatch_ms:g} ms dispatch "
            f"({chip.basis}; {', '.join(chip.sources)})"
        )
    if _cpu_share(chunks, chip) >= 0.01:
        cpu_ms = sum(work.cpu_ms for work in chunks)
        found.append(f"{cpu_ms:.2g} ms on the CPU at the prices of Core ML's planner on an M4 (751K)")
    return f"{chip.chip}: {'; '.join(found) or 'nothing to compute'}"
