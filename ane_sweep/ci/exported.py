"""A cell of an exported sweep as a baseline."""

from pathlib import Path

from ane_sweep.bundles import bundle, delivery
from ane_sweep.compare import sides
from ane_sweep.placement.types import Placement


def read_placements(word: str) -> dict[str, Placement]:
    """Return the predicted placements of one cell of a bundle, by chip. `word`: FILE.zip, or FILE.zip:axis=value,..."""
    file, _, words = word.partition(":")
    records = bundle.read(Path(file)).records
    chosen = sides.select_records(records, f"{Path(file).stem}:{words}") if words else records
    cell = delivery.select_cell(chosen, file)
    return {entry.chip: entry for entry in cell.placed("predicted") if entry.chip}
