"""The choice between Neural Engine and GPU for a program that may use both: the unit that is expected to run most of its ops.

Core ML's constants against the GPU are not public. Published placements (data/published/choices.csv) show that programs
went to the GPU, with most of their ops or all, if the GPU is some times faster; else they stayed mainly on the Neural
Engine, even if the GPU alone would have been quicker. So the unit follows from the ratio of the two estimates; the
threshold of that ratio is the only fitted number (data/latency.json). A chip whose GPU or Neural Engine has no figures
is not predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ane_sweep.placement import latency, work
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.latency import Terms, ane_ms, gpu_ms
from ane_sweep.placement.rows import OpRow
from ane_sweep.placement.sites import Site
from ane_sweep.placement.types import CHOICE_UNKNOWN

# A guess: of two measured programs one with 3.2 ms on the CPU went to the GPU, one with 0.3 stayed
GPU_FROM_CPU_MS = 1.0
ALONE = (
    "without the Neural Engine the GPU takes what it can: so did all six programs of which it was published (M1 Max)"
)


@dataclass(frozen=True)
class Choice:
    """The chosen unit (ane, gpu, or None if it is not predicted), and the reason as a sentence."""

    unit: str | None
    reason: str


def main(sites: Sequence[Site], chip: Chip) -> Choice:
    """Predict the unit that runs most of a program that may use all units."""
    times = ratio(sites, chip)
    if times is None:
        lacking = "GPU" if latency.of_chip(chip)["gpu"]["tflops"] is None else "Neural Engine"
        return Choice(
            None,
            f"{CHOICE_UNKNOWN}: nobody has published figures of the {chip.chip}'s {lacking}; shown is what the Neural Engine takes",
        )
    found = latency.fitted()["choice"]
    fit = f"of {found['rows']} published programs {found['right']} were on the unit that this says"
    faster = f"the GPU is estimated {times:.2g} times as fast"
    if times >= found["ratio"]:
        return Choice("gpu", f"{faster} as the Neural Engine, which was left from {found['ratio']:.2g} on ({fit})")
    return Choice("ane", f"{faster}, below the {found['ratio']:.2g} from which programs left the ANE ({fit})")


def ratio(sites: Sequence[Site], chip: Chip, terms: Terms | None = None) -> float | None:
    """Return the time of the whole program on the Neural Engine divided by its time on the GPU, or None without figures."""
    known = latency.of_chip(chip, terms)
    if known["ane"]["tflops"] is None or known["gpu"]["tflops"] is None or not sites:
        return None
    size = work.cache_bytes(chip.family)
    ane, gpu = (getattr(work.count_work(sites, [unit] * len(sites), size), unit) for unit in ("ane", "gpu"))
    return ane_ms(ane, known["ane"]) / gpu_ms(gpu, known["gpu"])


def against_the_gpu(rows: Sequence[OpRow], chip: Chip) -> str | None:
    """Move ops to the GPU if the GPU is chosen under `all`, and return the reason for the choice.

    Return None if no op is on the Neural Engine. On entry `rows` are placed as if there were no GPU.
    """
    if not any(row.preferred == "ane" for row in rows):
        return None
    chosen = main([row.site for row in rows], chip)
    for row in rows if chosen.unit == "gpu" else ():
        if "gpu" in row.verdict.supported and not row.site.nested:
            row.preferred, row.reason, row.confidence = "gpu", chosen.reason, "low"
    return chosen.reason


def on_the_gpu(rows: Sequence[OpRow]) -> None:
    """Move all ops that the GPU supports to the GPU, under `cpu_and_gpu`, unless the program is small."""
    worth = sum(row.cpu_ms for row in rows) >= GPU_FROM_CPU_MS
    for row in rows:
        row.confidence = "low"
        if worth and "gpu" in row.verdict.supported:
            row.preferred, row.reason = "gpu", ALONE
        else:
            row.reason = "the GPU does not take it" if worth else "small, so CPU: one of 0.3 ms stayed there (M4)"
