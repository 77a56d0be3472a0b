"""Sizes of Core AI's assets, whose weights lie in one file with the program."""

from pathlib import Path


def measure_bytes(program: Path) -> int:
    """Return the bytes of an asset on disk."""
    return sum(path.stat().st_size for path in program.rglob("*") if path.is_file())


def compute_bits_per_weight(program: Path, numbers: int) -> float:
    """Return the bits of the whole asset per dense number."""
    return 8 * measure_bytes(program) / numbers if numbers else 0.0
