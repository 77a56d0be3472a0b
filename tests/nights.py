"""Records and runs of our own making, for what compares them."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from constructed import placement

from ane_sweep.bridge.figures import Metric, Timing
from ane_sweep.bridge.record import Record, Status, write_records
from ane_sweep.placement.types import Ops

HOST = {
    "system": "Linux",
    "machine": "x86_64",
    "chip": "some chip",
    "cores": {"usable": 2},
    "os_build": "1",
    "power": "ac",
}
STEADY = (10.0, 10.1, 9.9, 10.05, 9.95)


def cell(medians=STEADY, *, psnr=80.0, worst=None, size=1000, ane=90, status="ok", reason=None, host=None, sweep="s", load=(5.0,) * 5,
         toolchain="9.0", prefill=(), estimates=(), **request):  # fmt: skip
    asked = {
        "model": "gpt2",
        "family": "gpt2",
        "size": "s",
        "chunks": 1,
        "latency": {"samples": 5},
        "runtime": "reference",
        **request,
    }
    timings = [Timing(n, m, b) for n, (m, b) in enumerate(zip(medians, load), 1)]
    timings = [replace(timing, prefill_median_ms=whole) for timing, whole in zip(timings, prefill)] or timings
    figures = {
        "latency_median_ms": (sorted(medians) or [None])[len(medians) // 2],
        "psnr_db": psnr,
        "psnr_worst_db": worst,
        "package_bytes": size,
        "latency_prefill_median_ms": (sorted(prefill) or [None])[len(prefill) // 2],
    }
    return Record(
        sweep=sweep,
        cell_key=hashlib.sha256(json.dumps(asked).encode()).hexdigest(),
        cell=asked,
        status=Status(status),
        reason=reason,
        realised={"runtime": "reference", "latency_task": json.dumps(asked)},
        metrics=[
            *(Metric(name, value) for name, value in figures.items() if value),
            *(Metric("latency_ms", ms, "ms", "estimated", chip=chip) for chip, ms in dict(estimates).items()),
        ],
        placement=[placement("predicted", "m4", Ops(cpu=100 - ane, gpu=0, ane=ane, total=100))],
        host={**HOST, **(host or {})},
        toolchain={"coremltools": toolchain},
        timings=timings,
    )


def slower(by: float, medians=STEADY):
    return tuple(by * median for median in medians)


def write_run(out: Path, stamp: str, records: list[Record], started: str | None = None, nightly: bool = True) -> None:
    folder = out / "runs" / stamp
    write_records(folder, [Record(**{**vars(record), "sweep": stamp}) for record in records])
    info = {
        "schema": 1,
        "stamp": stamp,
        "plan_key": "p",
        "command": [],
        "nightly": nightly,
        "started": started or stamp,
        "finished": stamp,
    }
    (folder / "run.json").write_text(json.dumps(info))
