"""a package of 3 GB from process start to first output, beside a plain read of its file; 16,500 ops until ready"""

import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import Row, lint, said
from tests.bench._programs import linear_chain, with_weights

GIB = 1 << 30
BYTES, WIDTH = 3_000_000_000, 8192
READY_BAR_S = 10.0
_READ = """
import json, sys, time
start, total = time.perf_counter(), 0
with open(sys.argv[1], "rb", buffering=0) as file:
    piece = bytearray(16 << 20)
    while count := file.readinto(piece):
        total += count
print(json.dumps({"s": time.perf_counter() - start, "bytes": total}))
"""
_LOAD = """
import json, sys, time
from pathlib import Path
began = time.perf_counter()
import torch
imported = time.perf_counter()
from ane_sweep import reference
from ane_sweep.bridge.protocol import peak_bytes
model = reference.load(Path(sys.argv[1]))
ready = time.perf_counter()
if "predict" in sys.argv:
    import numpy as np
    made = model.predict({name: np.ones(f.shape, f.dtype) for name, f in model.inputs.items()})
    assert all(np.isfinite(value).all() for value in made.values())
done = time.perf_counter()
print(json.dumps({"import": imported - began, "ready": ready - imported, "first": done - imported,
                  "ops": len(model.ops), "peak": peak_bytes()}))
"""


def run(size: int = BYTES, rounds: int = 3) -> list[Row]:
    """Each load and each read is a fresh process, in turn; the page cache is dropped before each where that is allowed."""
    with tempfile.TemporaryDirectory() as folder:
        package, count = linear_chain(Path(folder), size, WIDTH)
        weights = next(package.rglob("weight.bin"))
        loads, reads = [], []
        for _ in range(rounds):
            cold = _forget(weights)
            loads.append(_loaded(package, "predict"))
            _forget(weights)
            reads.append(said([sys.executable, "-P", "-c", _READ, str(weights)])["s"])
    state = "cold" if cold else "cached"
    first, read = median([entry["first"] for entry in loads]), median(reads)
    held = weights_text(count, size)
    return [
        Row(f"load to first output, {held}, {state}", f"{first:.2f} s", f"{read:.2f} s, reading the file", f"{first / read:.2f}"),
        Row("of that, until it is ready", f"{median([entry['ready'] for entry in loads]):.2f} s"),
        Row("peak of that process", f"{median([entry['peak'] for entry in loads]) / GIB:.2f} GiB"),
        *_many_ops(rounds),
    ]  # fmt: skip


def weights_text(count: int, size: int) -> str:
    return f"{count} layers, {size / 1e9:.1f} GB"


def _many_ops(rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        path = with_weights(lint.build(Path(folder)))
        loads = [_loaded(path) for _ in range(rounds)]
    ready = median([entry["ready"] for entry in loads])
    bar = f"under {READY_BAR_S:g} s"
    return [Row(f"{loads[0]['ops']} ops, ready (without importing torch)", f"{ready:.2f} s", bar=bar)]


def _loaded(package: Path, *words: str) -> dict[str, Any]:
    figures: dict[str, Any] = said([sys.executable, "-P", "-c", _LOAD, str(package), *words])
    return figures


def _forget(path: Path) -> bool:
    """Ask the kernel to drop a file from its page cache; whether it could be asked."""
    if not hasattr(os, "posix_fadvise"):
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    return True
