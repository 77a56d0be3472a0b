"""Tables in CSV files."""

import csv
from pathlib import Path


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table by its first line. Raises OSError, UnicodeDecodeError, csv.Error."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
