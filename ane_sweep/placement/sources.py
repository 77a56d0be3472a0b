"""The sources of a chip's estimates with their addresses (data/published/sources.csv)."""

from functools import cache
from pathlib import Path

from ane_sweep.csv_files import read_csv
from ane_sweep.placement.chips import Chip

FOLDER = Path(__file__).parent / "data" / "published"


def list_sources(chip: Chip) -> dict[str, str]:
    """Return {source: address} of a chip's rates and of the published latencies of it, each address once."""
    found = {_address(name): name for name in reversed([*chip.sources, *_tables().get(chip.chip, ())])}
    return {name: address for address, name in reversed(found.items()) if address}


def _address(source: str) -> str:
    """Return the address of a source, whose row holds the source's name or its beginning; "" for the user's measurements."""
    return next((row["url"] for row in _rows() if source.startswith(row["source"])), "")


@cache
def _rows() -> list[dict[str, str]]:
    return read_csv(FOLDER / "sources.csv")


@cache
def _tables() -> dict[str, list[str]]:
    """Return {chip: names of the published tables with a latency of it}."""
    found: dict[str, list[str]] = {}
    for row in read_csv(FOLDER / "latency.csv"):
        found.setdefault(row["chip"], []).append(row["table"])
    return found
