"""memory of every stage: the plan's estimate beside the peak, and the whole sweep's wall time and peak (some minutes a case)

`ANE_SWEEP_MODELS=minilm,gpt2` runs the cases whose names begin so.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.bench import Row, _kept, ane_sweep

BAR = "1 to 1.3"
keep = functools.partial(_kept.replace, "memory")  # it is run in pieces
FEW = ["weights=random", "runtime=reference", "latency.samples=3", "latency.warmup=1", "latency.repeats=1"]
CASES = {
    "minilm": ["model=minilm"],
    "gpt2": ["model=gpt2"],
    "gpt2 split_einsum 512": ["model=gpt2", "variant=split_einsum", "seq_len=512"],
    "gpt2 fp32": ["model=gpt2", "precision=fp32"],
    "gpt2 p4": ["model=gpt2", "precision=p4"],
    "gpt2 int8_tensor": ["model=gpt2", "precision=int8_tensor"],
    "gpt2 sparse50": ["model=gpt2", "precision=sparse50"],
    "gpt2 w8a8": ["model=gpt2", "precision=w8a8"],
    "gpt2 stateful": ["model=gpt2", "cache=stateful"],
    "gpt2 rewritten": ["model=gpt2", "rewrite=ane"],
    "gpt2-medium": ["model=gpt2-medium"],
    "t5-small": ["model=t5-small"],
    "vit-base": ["model=vit-base"],
    "whisper-base": ["model=whisper-base"],
    "clip-text": ["model=clip-text"],
    "ladder-base": ["model=ladder-base"],
    "t5-base": ["model=t5-base"],
    "flan-t5-large": ["model=flan-t5-large"],
    "gpt2-medium stateful": ["model=gpt2-medium", "cache=stateful"],
    "qwen2.5-0.5b int8_channel": ["model=qwen2.5-0.5b", "precision=int8_channel"],
    "opt-1.3b p6": ["model=opt-1.3b", "variant=split_einsum", "precision=p6"],
    "gpt2-xl": ["model=gpt2-xl"],
    "gpt2 and gpt2-xl, chunks=1,2,4": ["-m", "model=gpt2,gpt2-xl", "chunks=1,2,4"],
    "pythia-6.9b chunks=4": ["model=pythia-6.9b", "chunks=4"],
}


def run() -> list[Row]:
    """A row for each stage of each case, and one for the whole case."""
    wanted = [name for name in os.environ.get("ANE_SWEEP_MODELS", "").split(",") if name]
    return [
        row
        for name, words in CASES.items()
        if not wanted or name.startswith(tuple(wanted))
        for row in _rows(name, words)
    ]


def _rows(name: str, words: list[str]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("ANE_SWEEP_OUT")) as folder, _watch() as peaks:
        command = [sys.executable, "-P", "-m", "ane_sweep", "plan", *words, *FEW, "--json"]
        plan = subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, "ANE_SWEEP_OUT": folder}, check=True)
        planned = _largest(json.loads(plan.stdout)["tasks"], "memory_bytes")
        wall = ane_sweep([*words, *FEW], Path(folder))
        lines = Path(folder, "cache", "history.jsonl").read_text(encoding="utf-8").splitlines()
        seen = _largest(map(json.loads, lines), "peak_bytes")
    for stage, peak in seen.items():
        yield Row(f"{name}: {stage}", _gib(planned[stage]), _gib(peak), f"{planned[stage] / peak:.2f}", BAR)
    yield Row(f"{name}: wall, and all processes together (mapped weights count)", f"{wall:.0f} s, {_gib(max(peaks))}")


def _largest(tasks: Iterable[dict[str, Any]], key: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for task in tasks:
        found[task["stage"]] = max(found.get(task["stage"], 0), task[key] or 0)
    return found


@contextmanager
def _watch() -> Iterator[list[int]]:
    """Collect the resident bytes of this process's whole tree, read twice a second."""
    peaks, done = [0], threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while not done.wait(0.5):
            used = 0
            for process in me.children(recursive=True):
                try:
                    used += process.memory_info().rss
                except psutil.Error:
                    continue
            peaks.append(used)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peaks
    finally:
        done.set()
        watcher.join()


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
