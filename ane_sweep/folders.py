"""Where outputs lie, and a path as a user writes it."""

import os
import sys
from pathlib import Path


def outputs_folder(asked: str | None) -> Path:
    return user_path(asked or os.environ.get("ANE_SWEEP_OUT") or "outputs").absolute()


def data_folder() -> Path:
    """Return the user's data folder: calibrations of this machine, and the certificates of the user's own fleet."""
    if sys.platform == "darwin":
        return user_path("~/Library/Application Support/ane-sweep")
    return user_path(os.environ.get("XDG_DATA_HOME") or "~/.local/share") / "ane-sweep"


def user_path(text: str) -> Path:
    """With ~ as the home folder; one that nobody has stays as it is."""
    return Path(os.path.expanduser(text))
