"""The sources of a chip's estimates with their addresses (data/published/sources.csv)."""

from pathlib import Path

from ane_sweep.csv_files import read_csv
from ane_sweep.placement.chips import Chip

FOLDER = Path(__file__).parent / "data" / "published"


def list_sources(chip: Chip) -> dict[str, str]:
    """Return {source: address} of a chip's rates and of the published latencies of it, each address once.

    A row of sources.csv holds a source's name or its beginning; the user's own measurements have no row.
    """
    rows = read_csv(FOLDER / "sources.csv")
    tables = [row["table"] for row in read_csv(FOLDER / "latency.csv") if row["chip"] == chip.chip]
    found: dict[str, str] = {}
    for source in reversed([*chip.sources, *tables]):
        if address := next((row["url"] for row in rows if source.startswith(row["source"])), None):
            found[address] = source
    return {source: address for address, source in reversed(found.items())}
