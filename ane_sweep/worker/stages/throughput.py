"""throughput: how long many inputs take one after the other, in a tight loop, as a user with a pile of texts would run it.

The run of experiments-coreml-ane-distilbert: 1,821 sentences (the size of SST-2's test split), prepared before the clock
starts, one at a time or `batch` at a time. Ours are our own sentences, not SST-2's, repeated until there are as many: see
realised.throughput.

With cache=stateful an input is a window whose last tokens are decoded one by one (realised.decoded_tokens).

params  runtime and what it needs, throughput (how many inputs)
inputs  program (or checkpoint), reference (its inputs are predicted, over and over)
"""

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import Unavailable
from ane_sweep.worker import runtimes
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=130, many="throughput runs", timeout_s=3600, base_gib=0.6, per_byte=1.2, guess_s=20, guess_per_gb=15,
    stored=False, alone=True, last=True, runs_program=True,
    warm=("ane_sweep.worker.feeds.arrays",),
)  # fmt: skip

WARMUP = 3
Feed = TypeVar("Feed")


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """metrics   throughput_per_s, throughput_total_s. Raises Unavailable where this host has no such runtime."""
    from ane_sweep.worker.feeds.arrays import Inputs

    runtime = runtimes.get(params["runtime"])
    if reason := runtime.available():
        raise Unavailable(f"runtime={params['runtime']} {reason}")
    feeds = list(Inputs(inputs["reference"]))
    loaded = runtimes.load(params, inputs)
    feeds = [loaded.prepare(values) for values in feeds]

    def predict(values: dict[str, Any]) -> None:
        loaded.reset()  # each input is a sequence of its own
        loaded.predict(values)

    calls = -(-params["throughput"] // loaded.batch)
    count = calls * loaded.batch
    seconds = time_predictions(predict, feeds, calls, time.perf_counter)
    told = {"inputs": count, "distinct": min(count, len(feeds)), "order": "repeated in turn", "warmup": WARMUP}
    metrics = [
        Metric("throughput_per_s", count / seconds, "1/s", source=params["runtime"]),
        Metric("throughput_total_s", seconds, "s", source=params["runtime"]),
    ]
    return StageResult(metrics, {**loaded.realised, "throughput": told})


def time_predictions(
    predict: Callable[[Feed], Any], feeds: Sequence[Feed], count: int, clock: Callable[[], float]
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
