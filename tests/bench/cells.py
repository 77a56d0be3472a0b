"""200 tiny cells, seconds a cell: tasks forked from a parent that has done the imports, and started cold (some 15 minutes)"""

import resource
import tempfile
from pathlib import Path

from tests.bench import Row, ane_sweep

# Four cells a conversion, two a score and a timing: 200 over 50 programs, and 24 over 6 for the cold start.
MATRIX = [
    "-m", "model=tiny-gpt2", "weights=random", "variant=original,split_einsum", "chunks=1,2", "compute_units=all,cpu_only",
    "runtime=reference", "latency.repeats=1", "gate.wait_s=0", "tracking.enabled=false",
]  # fmt: skip
MANY, FEW = range(8, 208, 8), range(8, 32, 8)


def run() -> list[Row]:
    """Each once, on a cold cache."""
    forked, cold = _a_cell(MANY), _a_cell(FEW, cold=True)
    ours, theirs = (f"{wall:.2f} s, {cpu:.2f} s of CPU" for wall, cpu in (forked, cold))
    return [Row("200 tiny cells, seconds a cell", ours, theirs, f"{forked[1] / cold[1]:.2f}", "at most 0.2")]


def _a_cell(lengths: range, cold: bool = False) -> tuple[float, float]:
    """(wall, CPU) seconds a cell."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        words = [*MATRIX, f"seq_len={','.join(map(str, lengths))}"]
        wall = ane_sweep(words, Path(folder), ANE_SWEEP_COLD="1" if cold else "")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall / (8 * len(lengths)), cpu / (8 * len(lengths))
