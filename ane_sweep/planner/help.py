"""Help on each key, from the same tables that check a configuration. Imports nothing heavy."""

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap

from ane_sweep.bridge import plugins
from ane_sweep.bridge.cell import AXES
from ane_sweep.bridge.rewrites import plain_values
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.bridge.stages import limits
from ane_sweep.folders import user_path
from ane_sweep.planner import options, schema
from ane_sweep.planner.paths import conf_dir
from ane_sweep.terminal import BAD_CONFIGURATION, SWEEP_EXITS, columns
from ane_sweep.words import Parser

EXAMPLES = {
    "sweep": "ane-sweep -m model=gpt2 weights=random chunks=1,2",
    "plan": "ane-sweep plan -m model=gpt2 chunks=1,2,4",
}
JSON = {"sweep": "sweep, folder, code, statuses, records", "plan": "cells, tasks, refused, notes, seconds, disk_bytes"}
WHAT = {
    "sweep": "Run a matrix: one cell for each combination of the values given, in fresh processes; the same command goes on "
    "with what was interrupted. --cfg job prints the composed configuration, --hydra-help Hydra's own flags.",
    "plan": "What would run, what is shared, what it costs, what is refused and why; nothing is run.",
}
_GROUPS = {
    "model": ("model", "what is converted: a name, a hub's ORG/NAME[@REVISION], a checkpoint ./FOLDER"),
    "precision": ("precision", "of the arithmetic and the weights"),
    "sweep": ("+sweep=NAME", "a matrix kept in a file"),
}
EXITS = {"sweep": SWEEP_EXITS, "plan": {BAD_CONFIGURATION: "a wrong word, or all cells would be refused"}}


def grammar(verb: str = "sweep") -> Parser:
    """Return the parser of a verb that takes a matrix; its overrides follow Hydra's grammar (compose.py)."""
    usage = f"{'' if verb == 'sweep' else f'{verb} '}[-m] [KEY=VALUE[,VALUE...]]... [+sweep=NAME] [--json] [--config-dir DIR]"
    parser = Parser(usage, WHAT[verb], EXAMPLES[verb], EXITS[verb])
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="`ane-sweep help keys`; +KEY adds one, ~KEY removes one"
    )
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="every combination of the lists given (default: one cell)"
    )
    parser.json(JSON[verb], "text")
    parser.add_argument(
        "--config-dir", "-cd", metavar="DIR",
        help="a folder of your own options: model/NAME.yaml, precision/NAME.yaml, sweep/NAME.yaml (default: ./conf)",
    )  # fmt: skip
    return parser


def keys(config_dir: str | None = None) -> str:
    """Return every key with its choices and default; of models, precisions and kept matrices how many there are."""
    rest = [key for key in schema.KEYS if key not in AXES and not key.startswith("limits.")]
    lines = [axes(config_dir), "", "settings:", *_each(rest, config_dir)]
    lines += [f"  limits.STAGE.timeout_s, limits.STAGE.memory_gib    per task; STAGE: {','.join(limits())}"]
    return "\n".join([*lines, "", *_each(["sweep"], config_dir, listed=False)])


def axes(config_dir: str | None = None) -> str:
    """Return every axis as `keys` does, that of crash tests last."""
    order = sorted(AXES, key=lambda axis: axis == "fault")
    return "\n".join(["axes (a cell is one value of each):", *_each(order, config_dir, listed=False)])


def under(group: str, config_dir: str | None = None) -> str:
    """Return the help on the keys of a group: for `latency`, latency.samples and the others."""
    return "\n".join(_each([key for key in schema.KEYS if key.startswith(f"{group}.")], config_dir))


def describe_key(key: str, config_dir: str | None = None) -> str:
    """Return the help on one key; empty for an unknown one."""
    return "\n".join(_each([key], config_dir)) if key in names() else ""


def values(key: str, config_dir: str | None = None) -> list[str]:
    """Return the choices of a key if they can be listed; a group's options come from its folders."""
    if key in (*schema.GROUP_KEYS, "sweep"):
        return options.names([conf_dir(), *plugins.folders(), *own_folders(config_dir)], key)
    entry = schema.KEYS.get(key)
    if entry is None:
        return []
    if key == "runtime":
        return ["auto", *RUNTIMES]
    return [*map(str, entry.choices), *entry.words, *(("true", "false") if bool in entry.types else ())]


def names() -> list[str]:
    return [*schema.KEYS, *schema.GROUP_KEYS, "sweep"]


def _each(keys: Iterable[str], config_dir: str | None, *, listed: bool = True) -> list[str]:
    folders, shipped = [conf_dir(), *plugins.folders(), *own_folders(config_dir)], defaults()
    lines = []
    for key in keys:
        if key in _GROUPS and not listed:
            default = f" (default: {shipped[key]})" if key in shipped else ""
            lines += _counted(key, options.names(folders, key), default)
        elif key == "sweep":
            lines += _listed("+sweep=NAME", options.names(folders, key))
        elif key in schema.GROUP_KEYS:
            also = ", a hub's ORG/NAME[@REVISION], a checkpoint ./FOLDER" if key == "model" else ""
            lines += _listed(key, options.names(folders, key), f"{also} (default: {shipped[key]})")
        else:
            lines += _describe(key, shipped)
    return lines


def defaults() -> dict[str, object]:
    """Return {dotted key: default}; for a group, the name of its default option."""
    import yaml

    shipped = yaml.safe_load((conf_dir() / "config.yaml").read_text(encoding="utf-8"))
    groups = {
        group: name for entry in shipped.pop("defaults") if isinstance(entry, dict) for group, name in entry.items()
    }
    return (
        dict(schema.leaves({**plain_values(), **shipped, **asdict(RunSettings()), "limits": limits()}, schema.KEYS))
        | groups
    )


def _describe(key: str, defaults: dict[str, object]) -> list[str]:
    entry, default = schema.KEYS[key], json.dumps(defaults[key]).replace('"', "")
    listed = values(key) if key == "runtime" else entry.choices
    choices = f"{', '.join(map(str, listed))}; " if listed else ""
    return _wrapped(f"  {key:<22} {entry.help} ({choices}default: {default})")


def _listed(name: str, choices: list[str], default: str = "") -> list[str]:
    return _wrapped(f"  {name:<22} one of: {', '.join(choices) or 'none'}{default}")


def _counted(key: str, choices: list[str], default: str) -> list[str]:
    name, what = _GROUPS[key]
    return _wrapped(f"  {name:<22} {what}; `ane-sweep help {key}` lists all {len(choices)}{default}")


def _wrapped(text: str) -> list[str]:
    return wrap(text, min(118, columns()), subsequent_indent=" " * 25, drop_whitespace=True, break_on_hyphens=False)


def own_folders(config_dir: str | None) -> list[Path]:
    """Return the folders of the user's own options: that of --config-dir, else ./conf if it contains options. A ./conf
    with config.yaml is skipped: it belongs to another program, or is the shipped one of a checkout.
    """
    if config_dir is not None:
        return [user_path(config_dir)]
    here = Path("conf")
    is_own = any((here / group).is_dir() for group in (*schema.GROUP_KEYS, "sweep"))
    return [here] if is_own and not (here / "config.yaml").exists() else []


def own_notes(config_dir: str | None) -> list[str]:
    """Return a note if the folder of options was found without --config-dir."""
    found = [] if config_dir else own_folders(None)
    return [
        f"options of ./{folder} come before the shipped ones; --config-dir DIR takes another folder" for folder in found
    ]


def config_dir(args: list[str]) -> str | None:
    """Return the last value of --config-dir in a list of words."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", nargs="?")
    found: str | None = parser.parse_known_args(args)[0].config_dir
    return found
