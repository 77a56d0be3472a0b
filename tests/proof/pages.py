"""Shared by the proofs' scripts: options that a sweep reads, and the table of a page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml


def write_options(folder: Path, options: Mapping[str, object]) -> None:
    """Write options of models by name, for `--config-dir folder`."""
    (folder / "model").mkdir(parents=True)
    for name, option in options.items():
        (folder / "model" / f"{name}.yaml").write_text(yaml.safe_dump(option), encoding="utf-8")


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines)
