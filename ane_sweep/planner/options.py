"""Options of the groups model and precision: their names and contents.

An option is a file (NAME.yaml), a row of a file with several (`options: {NAME: {...}}`, each merged over the shared
part above), or a precision fully described by its name (p4_g16_scaled).
"""

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path

from ane_sweep.bridge.recipes import PALETTE_BITS
from ane_sweep.errors import ConfigError
from ane_sweep.mil import untrusted
from ane_sweep.planner import derive
from ane_sweep.planner.derive import Option
from ane_sweep.planner.paths import conf_dir

GROUPS = ("model", "precision")
Loader = type  # of PyYAML, which is imported where a file is read
ROWS = "options"
_PALETTE = re.compile(rf"p([{''.join(map(str, PALETTE_BITS))}])(_g16)?(_uniform)?(_scaled)?")
PALETTES = tuple(
    f"p{bits}{group}{mode}{scale}"
    for bits in PALETTE_BITS for group in ("", "_g16") for mode in ("", "_uniform") for scale in ("", "_scaled")
)  # fmt: skip
_ROW_LINES = re.compile(rf"^{ROWS}:[ ]*\n((?:(?:[ #].*)?\n)*)", re.MULTILINE)
_ROW_NAME = re.compile(r"^  ([\w.-]+):", re.MULTILINE)


def palette(name: str) -> Option | None:
    """Return the precision described by a name such as p3_g16_uniform_scaled, or None for another name.

    p3 is a table of 2^3 values a weight, by k-means; _g16 a table for each 16 output channels; _uniform a table of
    evenly spaced values; _scaled divides each channel by its largest magnitude first.
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
    """Return the names of a group's options, sorted; one in a sub-folder is `notebooks/gpt2-family`."""
    found = {f"{prefix}{name}" for folder in folders for prefix, name in _listed(folder / group)}
    computed = PALETTES if group == "precision" else ()
    return sorted({name for name in found if not name.startswith("_")}.union(computed))


def names_in(folder: Path) -> set[str]:
    """Return the options directly in one folder, without those of sub-folders."""
    return {name for path in folder.glob("*.yaml") if path.is_file() for name in row_names(path) or (path.stem,)}


def row_names(path: Path) -> list[str]:
    """Return the names of a file's rows, [] for a file that is one option. A file laid out like ours is not parsed as YAML."""
    try:
        text = untrusted.read_file(path, untrusted.MOST_JSON_BYTES).decode("utf-8") + "\n"
    except (OSError, ValueError):  # a pipe or a device named NAME.yaml, say: explained when somebody asks for it
        return []
    if f"\n{ROWS}:" not in f"\n{text}":
        return []
    laid_out = _ROW_LINES.search(text)
    return _ROW_NAME.findall(laid_out[1]) if laid_out and laid_out[1] else list(rows(path))


def rows(path: Path) -> dict[str, Option]:
    """Return the options of a file with several, each merged over the shared part; {} for a file that is one option."""
    try:
        return _rows(path, path.stat().st_mtime_ns, None)
    except (OSError, ConfigError):  # said when somebody asks for it
        return {}


def file_of(folder: Path, name: str) -> Path | None:
    """Return the file in a folder that contains an option, or None."""
    own = folder / f"{name}.yaml"
    if own.is_file() and not rows(own):
        return own
    return next((path for path in sorted(folder.glob("*.yaml")) if name in rows(path)), None)


def row(path: Path, name: str, loader: Loader | None = None) -> Option:
    """Return one option of a file with several. Raises ConfigError."""
    return deepcopy(_rows(path, path.stat().st_mtime_ns, loader)[name])


def shipped(group: str, name: str) -> Option:
    """Return an option that comes with ane-sweep, with its derived fields. Raises KeyError."""
    if group == "precision" and (option := palette(name)):
        return option
    if (path := file_of(conf_dir() / group, name)) is None:
        raise KeyError(f"{group}={name}")
    option = deepcopy(rows(path).get(name)) or _load(path.read_text(encoding="utf-8"))
    return derive.complete(group, name, option)


def _listed(folder: Path) -> list[tuple[str, str]]:
    """Return (folder with a slash, name) of each option under a group's folder."""
    pairs = []
    for path in folder.rglob("*.yaml"):
        inner = path.parent.relative_to(folder).as_posix()
        pairs += [("" if inner == "." else f"{inner}/", name) for name in row_names(path) or (path.stem,)]
    return pairs


@cache
def _rows(path: Path, changed_ns: int, loader: Loader | None) -> dict[str, Option]:
    from ane_sweep.planner import option_files  # which imports yaml: completion lists names without it

    text = option_files.read(path)
    if f"\n{ROWS}:" not in f"\n{text}":
        return {}
    option_files.check(path)
    shared = _load(text, loader)
    table = shared.pop(ROWS)
    if not isinstance(table, dict) or not all(isinstance(one, dict) for one in table.values()):
        raise ConfigError(f"{path}: {ROWS} is no mapping of names to options")
    return {str(name): _over(shared, one) for name, one in table.items()}


def _load(text: str, loader: Loader | None = None) -> Option:
    import yaml

    loaded: Option = yaml.load(text, loader or getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


def _over(shared: Mapping[str, object], own: Mapping[str, object]) -> Option:
    """Return an option merged over the shared part; mappings are merged key by key."""
    both = {
        key: _over(below, value)
        for key, value in own.items()
        if isinstance(value, Mapping) and isinstance(below := shared.get(key), Mapping)
    }
    return {**shared, **own, **both}
