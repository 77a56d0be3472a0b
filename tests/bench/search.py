"""timings until the best cell of MiniLM's product is found, where cells are timed: `best` whole from cold, 12 seeds of order replayed"""

# The product and the whole runs take some ten minutes of two cores. Each is a piece under $ANE_SWEEP_OUT (or outputs)
# /bench/search; after Ctrl-C the same command goes on with the piece it was at. The seeds replay the product's figures and
# run nothing. `--keep` also keeps what they replay, in search.json beside this module.

import json
import os
import random
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ane_sweep.bridge import disk, record
from ane_sweep.bridge.record import Record
from ane_sweep.results import search_log
from ane_sweep.search.goal import SPEED, Goal, Limit, figure
from ane_sweep.search.order import Asked, Band, Order, Predicted
from tests.bench import Row, _kept, ane_sweep

MATRIX = [
    "-m", "model=minilm", "variant=original,split_einsum", "chunks=1,2,4",
    "precision=fp16,int8_channel,int8_tensor,int4_channel,p8,p6,p6_uniform,p4,sparse50,sparse50_int8",
    "runtime=reference", "latency.repeats=1", "gate.wait_s=0", "tracking.enabled=false",  # by name: off a Mac `best` times nothing else
]  # fmt: skip
GOAL = Goal({SPEED: -1}, (Limit("psnr_db", 1, 40), Limit("package_mb", -1, 25)))
AXES = ("variant", "chunks", "precision")
SEEDS = range(12)
WHOLE = (0, 1)  # seeds of the runs from cold
OFF = 0.3  # of a made-up predictor, either way
KEPT = Path(__file__).with_suffix(".json")
Cell = dict[str, Any]  # its axes and figures


def run() -> list[Row]:
    return rows(pieces(Path(os.environ.get("ANE_SWEEP_OUT") or "outputs") / "bench" / "search"))


def keep(found: Sequence[Row]) -> Path:
    disk.write_json(KEPT, pieces(Path(os.environ.get("ANE_SWEEP_OUT") or "outputs") / "bench" / "search"))
    return _kept.keep("search", found)


def pieces(folder: Path) -> dict[str, Any]:
    """The product's cells, and what the whole runs did; what has run is not run again."""
    return {
        "product": _piece(folder, "product", MATRIX, product)["cells"],
        "whole": [_piece(folder, f"whole-{seed}", _best(seed), searched_cold) for seed in WHOLE],
    }


def _best(seed: int) -> list[str]:
    return ["best", *MATRIX, *map(str, GOAL.limits), "minimise=latency_ms", f"search.seed={seed}"]


def _piece(folder: Path, name: str, words: list[str], read: Callable[[Path], Any]) -> Any:
    """What one command came to, which has a folder of its own and a cold cache."""
    if (kept := disk.read_json(folder / f"{name}.json")) is None:
        print(f"{name} ...", file=sys.stderr, flush=True)
        ane_sweep(words, folder / name)
        kept = read(max((folder / name).glob("runs/*")))
        disk.write_json(folder / f"{name}.json", kept)
    return kept


def product(run: Path) -> dict[str, list[Cell]]:
    return {"cells": [as_cell(one) for one in record.read_records(run) if figure(one, "latency_ms") is not None]}


def as_cell(one: Record) -> Cell:
    return {axis: one.cell[axis] for axis in AXES} | {name: figure(one, name) for name in GOAL.figures}


def searched_cold(run: Path) -> dict[str, Any]:
    """The timed cells in their order, and the one that was found."""
    known = {one.cell_key: one for one in record.read_records(run)}
    found = search_log.read(run)
    assert found is not None
    timed = [as_cell(known[trial.cell]) for trial in found.trials if trial.never is None]
    return {"cells": len(known), "timed": timed, "best": as_cell(known[found.best[0]])}


def name_of(cell: Mapping[str, Any]) -> str:
    return f"{cell['variant']} chunks={cell['chunks']} {cell['precision']}"


def rows(found: Mapping[str, Any]) -> list[Row]:
    cells = {name_of(cell): cell for cell in found["product"]}
    truth = {name: cell["latency_ms"] for name, cell in cells.items()}
    fits = [name for name, cell in cells.items() if all(limit.holds(cell[limit.figure]) for limit in GOAL.limits)]
    best = min(fits, key=truth.__getitem__)
    whole = [_whole(one, truth, best) for one in found["whole"]]
    return [
        Row(f"{GOAL}: the whole product, once", f"{best}, {truth[best]:.1f} ms", f"{len(cells)} timings"),
        *(
            Row(f"`best`, whole and from cold, seed {seed}", said, f"{len(cells)} timings")
            for seed, said in zip(WHOLE, whole)
        ),
        Row("the same cell's latency in two of these runs, median", _scatter(found, truth)),
        *replayed(cells, truth, fits, best),
    ]


def _whole(one: Mapping[str, Any], truth: Mapping[str, float], best: str) -> str:
    """How many timings it took, and what the product says of the cell that it found."""
    timed = [name_of(cell) for cell in one["timed"]]
    mine = name_of(one["best"])
    more = truth[mine] / truth[best] - 1
    what = "the same cell" if mine == best else f"{mine}, in the product {100 * more:.1f} % slower"
    return f"{len(timed)} timings, {what} (timing {timed.index(mine) + 1})"


def _scatter(found: Mapping[str, Any], truth: Mapping[str, float]) -> str:
    apart = [abs(cell["latency_ms"] / truth[name_of(cell)] - 1) for one in found["whole"] for cell in one["timed"]]
    return f"{100 * median(apart):.1f} % apart ({len(apart)} pairs)" if apart else "not known"


def replayed(cells: Mapping[str, Cell], truth: Mapping[str, float], fits: list[str], best: str) -> list[Row]:
    """Seeds of order over the product's figures: nothing runs."""
    axes = {name: {axis: str(cell[axis]) for axis in AXES} for name, cell in cells.items()}
    within = {name: axes[name] for name in fits}

    def tried(order: Callable[[int], Order], open_: Collection[str]) -> list[list[str]]:
        return [walked(order(seed), open_, truth, set(fits)) for seed in SEEDS]

    def hopes(key: str, latency_ms: float) -> tuple[float, ...]:
        return (-latency_ms,)

    asked = until(tried(lambda seed: Asked(within, 1, seed), fits), best)
    tpe = until(tried(lambda seed: Asked(axes, 1, seed), list(cells)), best)
    chance = until(tried(lambda seed: Shuffled(seed), list(cells)), best)
    right = tried(lambda seed: Predicted(guessed(truth, seed), hopes), fits)
    wrong = tried(lambda seed: Predicted(shuffled(truth, fits, seed), hopes), fits)
    what = f"replay, {len(SEEDS)} seeds, timings until the optimum"
    return [
        Row(
            f"{what}: `best` where nothing predicts ({len(fits)} within the limits), TPE over all {len(cells)}",
            asked,
            tpe,
        ),
        Row(f"{what}: the same, chance over all", asked, chance),
        Row(f"{what}: `best` with a predictor off by up to {100 * OFF:.0f} %, chance", until(right, best), chance),
        Row(f"{what}: `best` with that predictor's estimates shuffled, chance", until(wrong, best), chance),
        Row(
            f"replay, {len(SEEDS)} seeds, timings until `best` ends: right predictor, shuffled",
            ended(right),
            ended(wrong),
        ),
    ]


def guessed(truth: Mapping[str, float], seed: int) -> dict[str, Band]:
    """Estimates that are off, with bands that hold."""
    chance = random.Random(seed)
    middle = {key: value * chance.uniform(1 - OFF, 1 + OFF) for key, value in truth.items()}
    return {key: Band(value / (1 + OFF), value, value / (1 - OFF)) for key, value in middle.items()}


def shuffled(truth: Mapping[str, float], fits: Sequence[str], seed: int) -> dict[str, Band]:
    """The same estimates, each said of another cell."""
    bands = guessed(truth, seed)
    others = list(fits)
    random.Random(seed).shuffle(others)
    return {key: bands[other] for key, other in zip(fits, others)}


def walked(order: Order, open_: Iterable[str], truth: Mapping[str, float], fits: Collection[str]) -> list[str]:
    """The cells that an order times, until it ends by itself."""
    left, timed = set(open_), []
    while (key := order.next(left)) is not None:
        left.discard(key)
        timed.append(key)
        order.tell(key, truth[key], (-truth[key],) if key in fits else None)
    return timed


def until(walks: Sequence[Sequence[str]], best: str) -> str:
    """Timings until the best cell is among them; how often it never was."""
    counts = [walk.index(best) + 1 for walk in walks if best in walk]
    lost = f", {len(walks) - len(counts)} seeds never" if len(counts) < len(walks) else ""
    return f"{median(counts):g} timings ({min(counts)} to {max(counts)}{lost})" if counts else "never"


def ended(walks: Sequence[Sequence[str]]) -> str:
    counts = [len(walk) for walk in walks]
    return f"{median(counts):g} timings ({min(counts)} to {max(counts)})"


class Shuffled:
    """Any order."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def next(self, open_: Collection[str]) -> str | None:
        return self.chance.choice(sorted(open_)) if open_ else None

    def tell(
        self, key: str, value: float | None, gains: tuple[float, ...] | None, excess: Mapping[str, float] | None = None
    ) -> None: ...


def kept() -> dict[str, Any]:
    """What `--keep` left: the pieces that the seeds replay."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found
