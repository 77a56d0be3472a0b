"""The probes: which questions they put, the reason of each, and the cells that answer them."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ane_sweep.bridge.cell import Cell
from ane_sweep.planner import config
from ane_sweep.planner.matrix import Request
from ane_sweep.terminal import count

SWEEP, TINY = "calibrate", "calibrate_tiny"
_TABLE = Path(__file__).parent / "probes.csv"


@dataclass(frozen=True)
class Probe:
    """`minutes` is a guess, for a Mac that has prepared nothing yet."""

    name: str
    asks: str
    why: str
    minutes: int


@cache
def listed() -> tuple[Probe, ...]:
    """In the order of the sweep's cells."""
    with open(_TABLE, encoding="utf-8", newline="") as file:
        return tuple(Probe(row["probe"], row["asks"], row["why"], int(row["minutes"])) for row in csv.DictReader(file))


def words(chip: str | None, tiny: bool, more: list[str]) -> list[str]:
    """The sweep that asks all of them of a Mac's Core ML, predicted for `chip`; for the usual ones where it is None."""
    chips = [] if chip is None else [f"chips=[{chip}]"]
    return ["-m", f"+sweep={TINY if tiny else SWEEP}", "runtime=coreml", *chips, *more]


def request(words: list[str]) -> Request:
    """Raises ConfigError, also where the words changed which cells there are."""
    return config.load(words)


def shown(cell: Cell) -> str:
    """A cell in the words that tell it from others."""
    arch = cell.model_options.get("arch") or {}
    layers, wide = arch.get("num_hidden_layers", "?"), arch.get("hidden_size", "?")
    net = "encoder" if cell.model.endswith("bert") else "linear pairs"
    chunks = count(cell.chunks, "chunk") if isinstance(cell.chunks, int) else f"{cell.chunks} chunks"
    return (
        f"{net} {layers} x {wide} ({arch.get('intermediate_size', '?')} inside), {cell.variant}, {cell.precision}, "
        f"{cell.seq_len} tokens, {chunks}, {cell.compute_units}"
    )
