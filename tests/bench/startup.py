"""--help, planning 1,000 cells, and the records of a finished 200-cell sweep"""

import tempfile
from pathlib import Path
from statistics import median

from tests.bench import Row, ane_sweep

THOUSAND = [
    "-m", "model=tiny-gpt2", "weights=random", "variant=original,split_einsum", "chunks=1,2,3,4,5", "seq_len=16,32,48,64,80",
    "compute_units=all,cpu_only,cpu_and_gpu,cpu_and_ne", "target=iOS15,iOS16,iOS17,iOS18,iOS26",
]  # fmt: skip
# 200 cells over 2 programs: the reference runtime shares what differs only in units, so that the sweep itself is short.
TWO_HUNDRED = [
    "-m", "model=tiny-gpt2", "weights=random", "seq_len=16", "runtime=torch_eager", "variant=original,split_einsum",
    "chunks=1,2,3,4,5", "compute_units=all,cpu_only,cpu_and_gpu,cpu_and_ne", "target=iOS15,iOS16,iOS17,iOS18,iOS26",
    "latency.samples=3", "latency.repeats=1", "tracking.enabled=false",
]  # fmt: skip


def run() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        help_s = median([ane_sweep(["--help"], out) for _ in range(5)])
        plan_s = median([ane_sweep(["plan", *THOUSAND], out) for _ in range(3)])
        ane_sweep(TWO_HUNDRED, out)
        resume_s = median([ane_sweep([*TWO_HUNDRED, "resume=last"], out) for _ in range(3)])
        again_s = ane_sweep(TWO_HUNDRED, out)
    return [
        Row("ane-sweep --help", f"{help_s:.2f} s", bar="under 0.6 s"),
        Row("plan of 1,000 cells", f"{plan_s:.2f} s", bar="under 5 s"),
        Row("resume=last, finished sweep of 200 cells", f"{resume_s:.2f} s", bar="under 5 s"),
        Row("the same 200 cells again, preparation cached", f"{again_s:.2f} s"),
    ]
