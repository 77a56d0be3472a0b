"""The probes of a calibration: their questions, the reason of each, and the cells that answer them."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ane_sweep.bridge.cell import Cell
from ane_sweep.csv_files import read_csv
from ane_sweep.terminal import count

SWEEP, TINY = "calibrate", "calibrate_tiny"
_TABLE = Path(__file__).parent / "probes.csv"


@dataclass(frozen=True)
class Probe:
    """One question to this chip; `minutes` is its estimated duration on a Mac with an empty cache."""

    name: str
    asks: str
    why: str
    minutes: int


@cache
def list_probes() -> tuple[Probe, ...]:
    """Return the probes in the order of the sweep's cells."""
    return tuple(Probe(row["probe"], row["asks"], row["why"], int(row["minutes"])) for row in read_csv(_TABLE))


def sweep_words(chip: str | None, tiny: bool, more: list[str]) -> list[str]:
    """Return the command-line words of a sweep of all probes on Core ML, with predictions for `chip`, or for the default chips."""
    chips = [] if chip is None else [f"chips=[{chip}]"]
    return ["-m", f"+sweep={TINY if tiny else SWEEP}", "runtime=coreml", *chips, *more]


def describe_cell(cell: Cell) -> str:
    """Return a text for a cell with the values in which probes differ."""
    arch = cell.model_settings.arch
    layers, wide = arch.get("num_hidden_layers", "?"), arch.get("hidden_size", "?")
    net = "encoder" if cell.model.endswith("bert") else "linear pairs"
    chunks = count(cell.chunks, "chunk") if isinstance(cell.chunks, int) else f"{cell.chunks} chunks"
    return (
        f"{net} {layers} x {wide} ({arch.get('intermediate_size', '?')} inside), {cell.variant}, {cell.precision}, "
        f"{cell.seq_len} tokens, {chunks}, {cell.compute_units}"
    )
