"""`ane-sweep --help`, from the tables that also check a configuration. Imports nothing heavy."""

import argparse
import json
from pathlib import Path
from textwrap import wrap
from typing import Any

from ane_sweep.bridge.cell import AXES
from ane_sweep.bridge.stages import STAGES
from ane_sweep.planner import schema
from ane_sweep.planner.paths import conf_dir
from ane_sweep.terminal import BAD_CONFIGURATION, IN_DOUBT, INTERRUPTED, NOT_ALL_OK, OK
from ane_sweep.words import Parser

USAGE = """ane-sweep: run an experiment matrix over Core ML programs, each task in a fresh process

  ane-sweep model=minilm                                one cell
  ane-sweep -m model=gpt2,gpt2-xl chunks=1,2,4          a matrix (Hydra's grammar: a,b  range()  glob()  'quoted'  +key  ~key)
  ane-sweep -m +sweep=quick                             a matrix kept in conf/sweep/
"""
MORE = """
Every verb answers --help: its words with their defaults, its exit codes, an example.
"""
EXAMPLES = {
    "sweep": "ane-sweep -m model=gpt2 weights=random chunks=1,2",
    "plan": "ane-sweep plan -m model=gpt2 chunks=1,2,4",
}
WHAT = {
    "sweep": "Run a matrix: one cell for each combination of the values given, in fresh processes; the same command goes on "
    "with what was interrupted. --cfg job prints the composed configuration, --hydra-help Hydra's own flags.",
    "plan": "What would run, what is shared, what it costs, what is refused and why; nothing is run.",
}
EXITS = {
    "sweep": {
        OK: "every cell that could run is ok",
        NOT_ALL_OK: "a cell failed, or ran elsewhere than asked; a nightly: a regression",
        BAD_CONFIGURATION: "a wrong word, a folder that cannot be used, or all cells refused; nothing was run",
        IN_DOUBT: "all ran, but a cell is degraded or was skipped; a nightly: nothing could be compared",
        INTERRUPTED: "interrupted; the same command goes on where it stopped",
    },
    "plan": {BAD_CONFIGURATION: "a wrong word, or all cells would be refused"},
}


def grammar(verb: str = "sweep") -> Parser:
    """The words of the verbs that take a matrix; what its overrides mean is Hydra's grammar (compose.py)."""
    usage = "[-m] [KEY=VALUE[,VALUE...]]... [+sweep=NAME] [--config-dir DIR]"
    name = "" if verb == "sweep" else verb
    parser = Parser(name, usage, WHAT[verb], EXAMPLES[verb], EXITS[verb])
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="the keys below; +KEY adds one, ~KEY removes one"
    )
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="every combination of the lists given (default: one cell)"
    )
    parser.add_argument(
        "--config-dir", "-cd", metavar="DIR",
        help="a folder of your own options: model/NAME.yaml, precision/NAME.yaml, sweep/NAME.yaml (default: none)",
    )  # fmt: skip
    return parser


def text(args: list[str], verb: str = "sweep", verbs: list[str] | None = None) -> str:
    """The whole help text; options of the groups are listed from the folders. `verbs`: a line of each, for the sweep's."""
    folders = [conf_dir(), *(Path(folder) for folder in config_dirs(args))]
    shipped = defaults()
    lines = [] if verbs is None else [USAGE, *verbs, MORE]
    lines += [grammar(verb).format_help(), "", "axes (a cell is one value of each):"]
    for axis in AXES:
        if axis in schema.GROUP_KEYS:
            lines += _listed(axis, _options(folders, axis), f" (default: {shipped[axis]})")
        else:
            lines += _line(axis, shipped)
    lines += ["", *_listed("+sweep=NAME", _options(folders, "sweep")), "", "settings:"]
    for key in schema.KEYS:
        if key not in AXES and not key.startswith("limits."):
            lines += _line(key, shipped)
    stages = ",".join(STAGES)
    lines.append(f"  limits.STAGE.timeout_s, limits.STAGE.memory_gib    per task; STAGE: {stages}")
    return "\n".join(lines)


def defaults() -> dict[str, Any]:
    """Dotted key -> its value in conf/config.yaml; a group's option by the group's name."""
    import yaml

    shipped = yaml.safe_load((conf_dir() / "config.yaml").read_text(encoding="utf-8"))
    options = {
        group: name for entry in shipped.pop("defaults") if isinstance(entry, dict) for group, name in entry.items()
    }
    return {**dict(schema.leaves(shipped, schema.KEYS)), **options}


def _line(key: str, defaults: dict[str, Any]) -> list[str]:
    entry, default = schema.KEYS[key], json.dumps(defaults[key]).replace('"', "")
    choices = f"{', '.join(map(str, entry.choices))}; " if entry.choices else ""
    return _wrapped(f"  {key:<22} {entry.help} ({choices}default: {default})")


def _listed(name: str, options: list[str], default: str = "") -> list[str]:
    return _wrapped(f"  {name:<22} one of: {', '.join(options) or 'none'}{default}")


def _wrapped(text: str) -> list[str]:
    return wrap(text, 118, subsequent_indent=" " * 25, drop_whitespace=True, break_on_hyphens=False)


def _options(folders: list[Path], group: str) -> list[str]:
    """Names as they are typed: of an option in a folder of its own, `notebooks/gpt2-family`."""
    roots = [folder / group for folder in folders]
    names = {path.relative_to(root).with_suffix("").as_posix() for root in roots for path in root.rglob("*.yaml")}
    return sorted(name for name in names if not name.startswith("_"))


def config_dirs(args: list[str]) -> list[str]:
    """Values of --config-dir, whatever else the words are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", action="append", nargs="?", default=[])
    return [folder for folder in parser.parse_known_args(args)[0].config_dir if folder is not None]
