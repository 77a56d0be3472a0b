"""The folder of the shipped options."""

from pathlib import Path


def conf_dir() -> Path:
    """Return conf/: inside the package in a wheel, next to it in a checkout."""
    here = Path(__file__).parents[1]
    inside = here / "conf"
    return inside if inside.is_dir() else here.parent / "conf"
