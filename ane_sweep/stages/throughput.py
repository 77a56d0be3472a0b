"""throughput: how long many inputs take one after the other, in a tight loop, as a user with a pile of texts would run it.

The run of experiments-coreml-ane-distilbert: 1,821 sentences (the size of SST-2's test split), prepared before the clock
starts, batch 1. Ours are our own sentences, not SST-2's, repeated until there are as many: see realised.throughput.

With cache=stateful an input is a window whose last tokens are decoded one by one (realised.decoded_tokens).

params  runtime and what it needs, throughput (how many inputs)
inputs  program (or checkpoint), reference (its inputs are predicted, over and over)
"""

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ane_sweep import runtimes
from ane_sweep.bridge.figures import Metric
from ane_sweep.errors import StageError, Unavailable

from . import StageResult

WARMUP = 3


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """metrics   throughput_per_s, throughput_total_s. Raises Unavailable where this host has no such runtime."""
    runtime = runtimes.get(params["runtime"])
    if reason := runtime.available():
        raise Unavailable(f"runtime={params['runtime']} {reason}")
    feeds = all_inputs(inputs["reference"])
    loaded = runtimes.load(params, inputs)
    if hasattr(loaded, "prepare"):
        feeds = [loaded.prepare(values) for values in feeds]
    reset = getattr(loaded, "reset", lambda: None)  # each input is a sequence of its own

    def predict(values: dict[str, Any]) -> None:
        reset()
        loaded.predict(values)

    count = params["throughput"]
    seconds = drain(predict, feeds, count, time.perf_counter)
    told = {"inputs": count, "distinct": min(count, len(feeds)), "order": "repeated in turn", "warmup": WARMUP}
    metrics = [
        Metric("throughput_per_s", count / seconds, "1/s", source=params["runtime"]),
        Metric("throughput_total_s", seconds, "s", source=params["runtime"]),
    ]
    return StageResult(metrics, {**loaded.realised, "throughput": told})


def drain(
    predict: Callable[[dict[str, Any]], Any], feeds: Sequence[dict[str, Any]], count: int, clock: Callable[[], float]
) -> float:
    """Seconds that `count` predictions take, the feeds in turn, after WARMUP calls. No garbage collection meanwhile."""
    for index in range(WARMUP):
        predict(feeds[index % len(feeds)])
    turn = [feeds[index % len(feeds)] for index in range(count)]
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        began = clock()
        for values in turn:
            predict(values)
        return clock() - began
    finally:
        if was_on:
            gc.enable()


def all_inputs(reference: Path) -> list[dict[str, Any]]:
    """Every input of reference/inputs.npz, ready to predict. Raises StageError when there is none."""
    import numpy as np

    with np.load(reference / "inputs.npz") as stored:
        stacked = {name: stored[name] for name in stored.files if name != "valid"}
    count = min((len(array) for array in stacked.values()), default=0)
    if not count:
        raise StageError(f"{reference / 'inputs.npz'}: holds no inputs; delete the folder and run again")
    return [{name: np.ascontiguousarray(array[i]) for name, array in stacked.items()} for i in range(count)]
