"""throughput: times many inputs one after the other in a tight loop, as for a user with many texts.

The method is that of experiments-coreml-ane-distilbert: 1,821 sentences (the size of SST-2's test split), prepared
before the clock starts, one at a time or `batch` at a time. The sentences are ours, not SST-2's, and repeat in turn:
see realised.throughput.

With cache=stateful an input is a window whose last tokens are decoded one by one (realised.decoded_tokens).

params  runtime and its parameters, throughput (number of inputs)
inputs  program (or checkpoint), reference (its inputs are predicted, over and over)
"""

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.memory_limits import pause_collection
from ane_sweep.worker import params, runtimes
from ane_sweep.worker.feeds.arrays import Inputs
from ane_sweep.worker.runtimes._runtime import Arrays
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=130, many="throughput runs", timeout_s=3600, base_gib=0.28, per_byte=1.3, base_s=0.2, per_gb_s=0.3,
    stored=False, alone=True, last=True, runs_program=True,
    warm=("ane_sweep.worker.feeds.arrays",),
)  # fmt: skip

WARMUP = 3
Feed = TypeVar("Feed")


class Params(params.RuntimeParams, frozen=True, kw_only=True):
    """Parameters of this stage; the runtime reads more of the same JSON."""

    throughput: int


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Measure throughput_per_s and throughput_total_s. Raises Unavailable if this host lacks the runtime."""
    settings = Params.read(params)
    runtimes.check_available(settings.runtime)
    feeds = list(Inputs(inputs["reference"]))
    loaded = runtimes.load(params, inputs)
    feeds = [loaded.prepare(values) for values in feeds]

    def predict(values: Arrays) -> None:
        loaded.reset()  # each input is a sequence of its own
        loaded.predict(values)

    calls = -(-settings.throughput // loaded.batch)
    count = calls * loaded.batch
    seconds = time_predictions(predict, feeds, calls, time.perf_counter)
    described = {"inputs": count, "distinct": min(count, len(feeds)), "order": "repeated in turn", "warmup": WARMUP}
    metrics = [
        Metric("throughput_per_s", count / seconds, "1/s", source=settings.runtime),
        Metric("throughput_total_s", seconds, "s", source=settings.runtime),
    ]
    return StageResult(metrics, {**loaded.realised, "throughput": described})


def time_predictions(
    predict: Callable[[Feed], object], feeds: Sequence[Feed], count: int, clock: Callable[[], float]
) -> float:
    """Return the seconds of `count` predictions of the feeds in turn, after WARMUP calls; garbage collection is off."""
    for index in range(WARMUP):
        predict(feeds[index % len(feeds)])
    turn = [feeds[index % len(feeds)] for index in range(count)]
    gc.collect()
    with pause_collection():
        began = clock()
        for values in turn:
            predict(values)
        return clock() - began
