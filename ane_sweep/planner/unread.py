"""What is said of words that nothing reads: keys, options, and settings of Hydra's own."""

import re
from pathlib import Path
from typing import Any

from ane_sweep.bridge import plugins
from ane_sweep.errors import ConfigError, nearest, suggestion
from ane_sweep.planner import schema

GROUPS = ("model", "precision", "sweep")
_WAYS = {  # in place of what Hydra would do by itself
    "hydra/launcher": "lanes=N prepares N tasks side by side",
    "hydra.launcher": "lanes=N prepares N tasks side by side",
    "hydra/sweeper": "key=a,b with -m is a matrix, and sweep/NAME.yaml keeps one",
    "hydra.sweeper": "key=a,b with -m is a matrix, and sweep/NAME.yaml keeps one",
    "hydra.sweep": "out=PATH says where a sweep leaves what it makes",
    "hydra.run": "out=PATH says where a sweep leaves what it makes",
    "hydra.mode": "-m runs a matrix",
    "hydra.searchpath": "--config-dir DIR is a folder of your own options",
}


def hydras(name: str) -> str:
    way = next((f"; {way}" for known, way in _WAYS.items() if f"{name}.".startswith(f"{known}.")), "")
    return f"{name}: Hydra only composes here, and nothing reads settings of its own{way}"


def lacking_key(error: ConfigError) -> str | None:
    """The key that an override could not change because nothing has it."""
    found = re.search(r"Could not override '([^']*)'", error.problems[0])
    return found[1] if found else None


def unknown_key(name: str) -> str:
    if name in schema.KEYS:
        return schema.no_default(name)
    group, _, key = name.partition(".")
    if group == "model" and key in schema.GIVEN:
        return f"{name}: belongs to {schema.GIVEN[key]}; see `ane-sweep help own_models`"
    return f"{name}: nothing reads this key{suggestion(name, [*schema.KEYS, *GROUPS])}; `ane-sweep help keys` lists the keys"


def unknown_option(group: str, name: Any, options: list[str]) -> str:
    more = ""
    if group == "model":
        folder = Path(str(name)).is_dir()
        more = f", the folder is model=./{name}" if folder else ", a checkpoint is ORG/NAME of the hub or ./FOLDER"
    broken = plugins.broken(*(kind for kind, folder in plugins.OPTIONS.items() if folder == group))
    choices = nearest(name, options, f"ane-sweep help {group}")
    return ". ".join(
        (
            f"{group}={name}: unknown{suggestion(name, options)}; choices: {choices}",
            f"A new one is a file {group}/{name}.yaml in ./conf, or in a folder given with --config-dir{more}",
            *broken,
        )
    )
