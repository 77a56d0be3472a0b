"""Where outputs lie, and a path as a user writes it."""

import os
from pathlib import Path


def outputs_folder(asked: str | None) -> Path:
    return user_path(asked or os.environ.get("ANE_SWEEP_OUT") or "outputs").absolute()


def user_path(text: str) -> Path:
    """With ~ as the home folder; one that nobody has stays as it is."""
    return Path(os.path.expanduser(text))
