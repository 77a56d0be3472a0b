"""trials until the best cell of MiniLM's product is found, 12 seeds: `best`, TPE alone, chance (one full product first)"""

import random
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from ane_sweep.bench import Row, demo
from ane_sweep.bridge.record import Record
from ane_sweep.search.goal import Goal, Limit, figure
from ane_sweep.search.order import Asked, Band, Order, Predicted

SWEEP = [
    "-m", "model=minilm", "variant=original,split_einsum", "chunks=1,2",
    "precision=fp16,int8_channel,p8,p6,p4,sparse50", "latency.repeats=1",
]  # fmt: skip
GOAL = Goal({"latency_ms": -1}, (Limit("psnr_db", 1, 40), Limit("package_mb", -1, 25)))
SEEDS = range(12)
OFF = 0.3  # of a made-up predictor, either way


def run() -> list[Row]:
    records = [one for one in demo.swept(SWEEP) if figure(one, "latency_ms") is not None]
    fits = [one for one in records if GOAL.broken(one) is None]
    truth = {one.cell_key: figure(one, "latency_ms") or 0.0 for one in records}
    best = min(fits, key=lambda one: truth[one.cell_key]).cell_key
    keys = [one.cell_key for one in fits]

    def tried(order: Callable[[int], Order], open_: Iterable[str]) -> str:
        counts = [until(order(seed), open_, truth, set(keys), best) for seed in SEEDS]
        return f"{median(counts):g} timings ({min(counts)} to {max(counts)})"

    everything = [one.cell_key for one in records]
    asked = tried(lambda seed: Asked(axes(fits), 1, seed), keys)
    predicted = tried(lambda seed: Predicted(guessed(truth, seed), lambda key, ms: (-ms,)), keys)
    tpe = tried(lambda seed: Asked(axes(records), 1, seed), everything)
    chance = tried(Shuffled, everything)
    whole = f"{len(records)} cells, {len(fits)} within the limits"
    return [
        Row(f"{GOAL}: `best` where nothing predicts, against TPE alone; {whole}", asked, tpe),
        Row("the same, against chance", asked, chance),
        Row(f"`best` with a made-up predictor that is off by up to {OFF:.0%}".replace("%", " %"), predicted, chance),
    ]


def axes(records: list[Record]) -> dict[str, dict[str, Any]]:
    return {one.cell_key: {axis: str(one.cell[axis]) for axis in ("variant", "chunks", "precision")} for one in records}


def guessed(truth: dict[str, float], seed: int) -> dict[str, Band]:
    chance = random.Random(seed)
    middle = {key: value * chance.uniform(1 - OFF, 1 + OFF) for key, value in truth.items()}
    return {key: Band(value / (1 + OFF), value, value / (1 - OFF)) for key, value in middle.items()}


def until(order: Order, open_: Iterable[str], truth: dict[str, float], fits: set[str], best: str) -> int:
    """How many cells are timed until the best one is among them; all, where the order ends without it."""
    left, count = set(open_), 0
    while (key := order.next(left)) is not None:
        left.discard(key)
        count += 1
        if key == best:
            return count
        order.tell(key, truth[key], (-truth[key],) if key in fits else None)
    return len(truth)


class Shuffled:
    """Any order."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def next(self, open_: Any) -> str | None:
        return self.chance.choice(sorted(open_)) if open_ else None

    def tell(self, key: str, value: float | None, gains: Any) -> None: ...
