"""gpt2-xl (random weights) chunks=1,2,4 end to end: wall time and peak memory (tens of minutes, 24 GiB)"""

import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from tests.bench import Row, ane_sweep

MATRIX = [
    "-m",
    "model=gpt2-xl",
    "weights=random",
    "chunks=1,2,4",
    "runtime=reference",
    "latency.samples=3",
    "latency.warmup=1",
    "latency.repeats=1",
]


def run() -> list[Row]:
    """Peak is of this process's whole tree, resident bytes read twice a second (mapped weights count)."""
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        me = psutil.Process()
        while not done.wait(0.5):
            used = 0
            for process in me.children(recursive=True):
                try:
                    used += process.memory_info().rss
                except psutil.Error:
                    continue
            peak = max(peak, used)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            ane_sweep(MATRIX, Path(folder))
    finally:
        done.set()
        watcher.join()
    wall = time.perf_counter() - began
    total = psutil.virtual_memory().total
    print(f"host memory {total / 2**30:.1f} GiB", file=sys.stderr)
    return [
        Row("gpt2-xl chunks=1,2,4, wall", f"{wall:.0f} s"),
        Row(
            "gpt2-xl chunks=1,2,4, peak of all processes",
            f"{peak / 2**30:.1f} GiB",
            bar=f"under {total / 2**30:.0f} GiB",
        ),
    ]
