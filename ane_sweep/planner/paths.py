"""The folder of the shipped options."""

from pathlib import Path


def conf_dir() -> Path:
    """Return conf/, which lies inside the package in a wheel and beside it in a checkout."""
    here = Path(__file__).parents[1]
    inside = here / "conf"
    return inside if inside.is_dir() else here.parent / "conf"
