"""Options of the groups model and precision: their names and contents.

An option is a file of its own (NAME.yaml), a row of a file that holds several (`options: {NAME: {...}}`, each over what
stands above them), or a precision whose name says all of it (p4_g16_scaled).
"""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ane_sweep.bridge.recipes import PALETTE_BITS
from ane_sweep.errors import ConfigError
from ane_sweep.planner import derive, option_files
from ane_sweep.planner.derive import Option
from ane_sweep.planner.paths import conf_dir

GROUPS = ("model", "precision")
ROWS = "options"
_PALETTE = re.compile(rf"p([{''.join(map(str, PALETTE_BITS))}])(_g16)?(_uniform)?(_scaled)?")
PALETTES = tuple(
    f"p{bits}{group}{mode}{scale}"
    for bits in PALETTE_BITS for group in ("", "_g16") for mode in ("", "_uniform") for scale in ("", "_scaled")
)  # fmt: skip
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def palette(name: str) -> Option | None:
    """Return the precision that a name such as p3_g16_uniform_scaled says, or None for another name.

    p3 is a table of 2^3 values a weight, by k-means; _g16 a table for each 16 output channels; _uniform a table of evenly
    spaced values; _scaled divides each channel by its largest magnitude first.
    """
    if (parts := _PALETTE.fullmatch(name)) is None:
        return None
    bits, grouped, uniform, scaled = parts.groups()
    weights = {
        "kind": "palettized",
        "bits": int(bits),
        "granularity": "per_grouped_channel" if grouped else "per_tensor",
        **({"group_size": 16} if grouped else {}),
        "mode": "uniform" if uniform else "kmeans",
        "per_channel_scale": bool(scaled),
    }
    return derive.complete("precision", name, {"weights": weights})


def names(folders: Iterable[Path], group: str) -> list[str]:
    """Return a group's options in their typed form, sorted; one in a sub-folder is `notebooks/gpt2-family`."""
    found = {f"{prefix}{name}" for folder in folders for prefix, name in _listed(folder / group)}
    computed = PALETTES if group == "precision" else ()
    return sorted({name for name in found if not name.startswith("_")}.union(computed))


def names_in(folder: Path) -> set[str]:
    """Return the options that lie in one folder, without those of its folders."""
    return {name for path in folder.glob("*.yaml") if path.is_file() for name in rows(path) or (path.stem,)}


def rows(path: Path) -> dict[str, Option]:
    """Return the options of a file that holds several, each over what they share; {} for a file that is one option."""
    try:
        return _rows(path, path.stat().st_mtime_ns, _Loader)
    except (OSError, ConfigError):  # said when somebody asks for it
        return {}


def file_of(folder: Path, name: str) -> Path | None:
    """Return the file of a folder that holds an option, or None."""
    own = folder / f"{name}.yaml"
    if own.is_file() and not rows(own):
        return own
    return next((path for path in sorted(folder.glob("*.yaml")) if name in rows(path)), None)


def row(path: Path, name: str, loader: Any = _Loader) -> Option:
    """Return one option of a file that holds several. Raises ConfigError."""
    return deepcopy(_rows(path, path.stat().st_mtime_ns, loader)[name])


def shipped(group: str, name: str) -> Option:
    """Return an option that comes with ane-sweep, with its derived fields. Raises KeyError."""
    if group == "precision" and (option := palette(name)):
        return option
    if (path := file_of(conf_dir() / group, name)) is None:
        raise KeyError(f"{group}={name}")
    option = deepcopy(rows(path).get(name)) or yaml.load(path.read_text(encoding="utf-8"), _Loader)
    return derive.complete(group, name, option)


def all_shipped(group: str) -> dict[str, Option]:
    """Return all options of a group that come with ane-sweep, by name."""
    return {name: shipped(group, name) for name in names([conf_dir()], group)}


def _listed(folder: Path) -> list[tuple[str, str]]:
    """Return (folder with a slash, name) of each option under a group's folder."""
    pairs = []
    for path in folder.rglob("*.yaml"):
        inner = path.parent.relative_to(folder).as_posix()
        pairs += [("" if inner == "." else f"{inner}/", name) for name in rows(path) or (path.stem,)]
    return pairs


@cache
def _rows(path: Path, changed_ns: int, loader: Any) -> dict[str, Option]:
    text = option_files.read(path)
    if f"\n{ROWS}:" not in f"\n{text}":
        return {}
    option_files.check(path)
    shared = yaml.load(text, loader)
    table = shared.pop(ROWS)
    if not isinstance(table, dict) or not all(isinstance(one, dict) for one in table.values()):
        raise ConfigError(f"{path}: {ROWS} is no mapping of names to options")
    return {str(name): _over(shared, one) for name, one in table.items()}


def _over(shared: Mapping[str, Any], own: Mapping[str, Any]) -> Option:
    """Return an option over what it shares with others; mappings are merged key by key."""
    both = {key: _over(shared[key], value) for key, value in own.items()
            if isinstance(value, Mapping) and isinstance(shared.get(key), Mapping)}  # fmt: skip
    return {**shared, **own, **both}
