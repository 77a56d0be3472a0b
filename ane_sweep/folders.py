"""The folders of outputs and of the user's data, and paths as a user writes them."""

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
    """Return the path with ~ replaced by the home folder; the ~name of an unknown user stays."""
    return Path(os.path.expanduser(text))
