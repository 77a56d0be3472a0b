"""Where the shipped options lie."""

from pathlib import Path


def conf_dir() -> Path:
    """conf/: inside the package in a wheel, beside it in a checkout."""
    here = Path(__file__).parents[1]
    inside = here / "conf"
    return inside if inside.is_dir() else here.parent / "conf"
