"""From the command line to cells. The only module that imports Hydra and OmegaConf.

Hydra composes every option once; the product of the axes is then taken here in plain Python. (Composing each cell
through Hydra costs some 40 ms a cell; a thousand cells would take longer to plan than a small one takes to run.)
"""

import itertools
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra import main as hydra_main
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ane_sweep import schema
from ane_sweep.cell import Cell, canonical_json
from ane_sweep.errors import ConfigError
from ane_sweep.paths import conf_dir

GROUPS = ("model", "precision", "sweep")
HYDRA_FLAGS = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--shell-completion", "-sc", "--version")
SETTINGS = ("budget_minutes", "chips", "gate", "lanes", "memory_gib", "nightly", "out", "resume", "tracking")


@dataclass
class Request:
    """What the command line asks for: cells in order, the axes that vary, and how to run them."""

    cells: list[Cell]
    axes: list[str]
    settings: dict[str, Any]
    notes: list[str] = field(default_factory=list)


@dataclass
class Axis:
    """One dimension of the product: several keys that move together (one key, unless paired)."""

    keys: tuple[str, ...]
    values: list[tuple[Any, ...]]


def pass_to_hydra(args: list[str]) -> bool:
    """Let Hydra answer its own questions (--cfg, --info, --hydra-help ...); True when it did."""
    if not any(arg.split("=")[0] in HYDRA_FLAGS for arg in args):
        return False
    if "-m" in args or "--multirun" in args:
        raise ConfigError("--cfg and --info show one configuration: leave out -m, and give each key one value")
    sys.argv = ["ane-sweep", *args]
    hydra_main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(lambda config: None)()
    return True


def load(args: list[str]) -> Request:
    """Parse, compose, expand and check. Raises ConfigError with every problem found, before anything runs."""
    parser = get_args_parser()
    parser.prog = "ane-sweep"
    parsed = parser.parse_intermixed_args(args)
    composer = Composer(parsed.config_dir)
    overrides = _parse(parsed.overrides)
    fixed = [o for o in overrides if not o.is_sweep_override()]
    swept = [o for o in overrides if o.is_sweep_override()]
    presets = any(o.key_or_group == "sweep" for o in fixed)
    if swept and not (parsed.multirun or presets):
        raise ConfigError([f"{o.input_line} lists several values: add -m to run them all" for o in swept])
    axes = [_command_line_axis(o, composer) for o in swept]
    lines = [str(o.input_line) for o in fixed]
    every = [[f"{_sign(o)}{axis.keys[0]}={_text(value)}" for (value,) in axis.values] for o, axis in zip(swept, axes)]
    try:
        base = composer.compose(lines + [first for first, *_ in every])
    except (HydraException, OmegaConfBaseException) as error:
        found = [problem for line in [*lines, *itertools.chain(*every)] for problem in composer.problems(line)]
        raise ConfigError(list(dict.fromkeys(found)) or _first_lines(error)) from None
    axes += _preset_axes(base, {o.key_or_group for o in overrides})
    return _expand(base, axes, composer, lines)


class Composer:
    """Hydra, asked for one configuration at a time."""

    def __init__(self, config_dir: str | None = None):
        search_path = create_config_search_path(str(conf_dir()))
        if config_dir is not None:
            folder = Path(config_dir).expanduser().resolve()
            if not folder.is_dir():
                raise ConfigError(
                    f"--config-dir {config_dir}: no such folder; give one that holds model/, precision/ or sweep/"
                )
            search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
        GlobalHydra.instance().clear()
        self.hydra = Hydra.create_main_hydra2("ane-sweep", search_path)

    def options(self, group: str) -> list[str]:
        """Names of a group's options, those in its folders too (sweep=notebooks/gpt2-family)."""
        loader = self.hydra.config_loader
        plain = [name for name in loader.get_group_options(group) if not name.startswith("_")]
        folders = loader.get_group_options(group, results_filter=ObjectType.GROUP)
        return plain + [f"{folder}/{name}" for folder in folders for name in self.options(f"{group}/{folder}")]

    def compose(self, overrides: list[str]) -> dict[str, Any]:
        """The configuration as plain values, interpolations kept. Raises Hydra's errors."""
        config = self.hydra.compose_config("config", overrides, run_mode=RunMode.RUN, with_log_configuration=False)
        plain: Any = OmegaConf.to_container(config, resolve=False)
        plain.pop("hydra", None)
        return plain

    def problems(self, line: str) -> list[str]:
        """What is wrong with one override on its own, in our words where we know the choices."""
        override = _parse([line])[0]
        name = override.key_or_group
        if name in GROUPS and not override.is_delete() and override.value() not in self.options(name):
            return [unknown_option(name, override.value(), self.options(name))]
        try:
            return schema.problems(self.compose([line]))
        except (HydraException, OmegaConfBaseException) as error:
            if str(error).startswith("Could not override"):
                return [unknown_key(name)]
            return [f"{line}: {_first_lines(error)}"]


def unknown_key(name: str) -> str:
    return f"{name}: nothing reads this key{schema.suggestion(name, [*schema.KEYS, *GROUPS])}; `ane-sweep --help` lists the keys"


def unknown_option(group: str, name: Any, options: list[str]) -> str:
    return (
        f"{group}={name}: unknown{schema.suggestion(name, options)}; choices: {', '.join(options)}. "
        f"A new one is a file {group}/{name}.yaml in a folder given with --config-dir"
    )


def _parse(lines: list[str]) -> list[Override]:
    parser = OverridesParser.create()
    parsed, found = [], []
    for line in lines:
        try:
            parsed.append(parser.parse_override(line))
        except HydraException as error:
            found.append(f"{line}: {_first_lines(error)}. The form is key=value, key=a,b,c with -m, +key=value or ~key")
    if found:
        raise ConfigError(found)
    return parsed


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:3] if line.strip())


def _sign(override: Override) -> str:
    return {"ADD": "+", "FORCE_ADD": "++"}.get(override.type.name, "") if override.type else ""


def _text(value: Any) -> str:
    """A value as Hydra's grammar writes it (a string that the grammar cannot hold bare is quoted)."""
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    plain = all(c.isalnum() or c in "-_./+" for c in value) and value != ""
    return value if plain else "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _command_line_axis(override: Override, composer: Composer) -> Axis:
    name = override.key_or_group
    if override.value_type is not None and override.value_type.name == "GLOB_CHOICE_SWEEP":
        if name not in GROUPS:
            raise ConfigError(
                f"{override.input_line}: glob() chooses among the options of a group ({', '.join(GROUPS)})"
            )
        glob: Any = override.value()
        values: list[Any] = glob.filter(composer.options(name))
    elif override.is_choice_sweep() or override.is_range_sweep():
        parser = OverridesParser.create()
        values = [parser.parse_override(f"{name}={text}").value() for text in override.sweep_string_iterator()]
    else:
        raise ConfigError(f"{override.input_line}: an interval has no list of values; write choices or range(...)")
    if not values:
        raise ConfigError(f"{override.input_line}: matches nothing; choices: {', '.join(composer.options(name))}")
    return Axis((name,), [(value,) for value in values])


def _preset_axes(base: dict[str, Any], taken: set[str]) -> list[Axis]:
    """The axes and paired axes of conf/sweep/NAME.yaml; a key given on the command line wins over the preset's."""
    sweep = base.get("sweep") or {}
    if found := schema.sweep_problems(sweep):
        raise ConfigError(found)
    axes = []
    for name, values in (sweep.get("axes") or {}).items():
        if not isinstance(values, list) or not values:
            found.append(f"sweep.axes.{name}: expected a list of values, got {values!r}")
        elif name not in taken:
            axes.append(Axis((name,), [(value,) for value in values]))
    for pair in sweep.get("pairs") or []:
        columns = {name: values for name, values in pair.items() if name not in taken}
        if len({len(values) for values in pair.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(values)}" for name, values in pair.items())
            found.append(f"sweep.pairs: paired axes need lists of one length: {lengths}")
        elif columns:
            axes.append(Axis(tuple(columns), list(zip(*columns.values()))))
    if found:
        raise ConfigError(found)
    return axes


def _expand(base: dict[str, Any], axes: list[Axis], composer: Composer, fixed: list[str]) -> Request:
    options, unknown = _compose_options(axes, composer, fixed)
    exclude = (base.get("sweep") or {}).get("exclude") or []
    interpolated = "${" in json.dumps([base, *options.values()], default=str)
    cells: dict[str, Cell] = {}
    found = dict.fromkeys(unknown)
    used: set[int] = set()
    asked = 0
    for choice in itertools.product(*(axis.values for axis in axes)):
        assigned = {key: value for axis, values in zip(axes, choice) for key, value in zip(axis.keys, values)}
        asked += 1
        if any(key in schema.GROUP_KEYS and not _is_option(key, value, options) for key, value in assigned.items()):
            continue  # already among the problems
        if hits := [i for i, rule in enumerate(exclude) if _matches(rule, assigned, base)]:
            used.update(hits)
            continue
        config = _assign(base, assigned, options)
        if interpolated:
            config = _resolve(config)
        if problems := schema.problems(config):
            found.update(dict.fromkeys(problems))
            continue
        cell = _cell(config)
        cells.setdefault(cell.key, cell)
    if found:
        raise ConfigError(list(found))
    if not cells:
        raise ConfigError(f"the sweep's exclude rules leave none of its {asked} cells; see conf/sweep/")
    notes = [f"sweep.exclude: {rule} excluded nothing" for i, rule in enumerate(exclude) if i not in used]
    every = list(cells.values())
    varying = [
        key for axis in axes for key in axis.keys if len({canonical_json(cell.value(key)) for cell in every}) > 1
    ]
    return Request(every, varying, {key: base[key] for key in SETTINGS}, notes)


def _compose_options(
    axes: list[Axis], composer: Composer, fixed: list[str]
) -> tuple[dict[tuple[str, Any], dict[str, Any]], list[str]]:
    """(group, option) -> its contents, each composed once; and the values and keys of the axes that do not exist."""
    composed: dict[tuple[str, Any], dict[str, Any]] = {}
    found: list[str] = []
    for key, value in ((key, row[i]) for axis in axes for i, key in enumerate(axis.keys) for row in axis.values):
        if key in schema.GROUP_KEYS:
            if _is_option(key, value, composed):
                continue
            if value in (known := composer.options(key)):
                composed[key, value] = composer.compose([*fixed, f"{key}={value}"])[key]
            else:
                found.append(unknown_option(key, value, known))
        elif key.split(".")[0] in SETTINGS:
            found.append(f"{key}: several values, but it is a setting of the whole sweep and no axis; give one")
        elif key not in schema.KEYS and key.split(".")[0] not in schema.GROUP_KEYS:
            found.append(unknown_key(key))
    return composed, list(dict.fromkeys(found))


def _is_option(key: str, value: Any, options: Mapping[tuple[str, Any], Any]) -> bool:
    """Whether a value names a composed option of a group; values of plain keys may be lists, which cannot be looked up."""
    return isinstance(value, str) and (key, value) in options


def _assign(
    base: dict[str, Any], assigned: Mapping[str, Any], options: Mapping[tuple[str, Any], dict[str, Any]]
) -> dict[str, Any]:
    """A copy of `base` with every assignment in it: groups first, then keys, as Hydra does."""
    config = dict(base)
    for key, value in sorted(assigned.items(), key=lambda item: not _is_option(item[0], item[1], options)):
        if _is_option(key, value, options):
            config[key] = options[key, value]
            continue
        *path, last = key.split(".")
        node = config
        for part in path:
            node[part] = dict(node.get(part) or {})
            node = node[part]
        node[last] = value
    return config


def _matches(rule: Mapping[str, Any], assigned: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Whether a cell has, on every axis that an exclude rule names, (one of) the rule's value(s)."""

    def value(key: str) -> Any:
        if key in assigned:
            return assigned[key]
        node: Any = base
        for part in key.split("."):
            node = node.get(part) if isinstance(node, dict) else None
        return node.get("name") if isinstance(node, dict) else node

    return all(value(key) in (wanted if isinstance(wanted, list) else [wanted]) for key, wanted in rule.items())


def _resolve(config: dict[str, Any]) -> dict[str, Any]:
    try:
        resolved: Any = OmegaConf.to_container(OmegaConf.create(config), resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_first_lines(error)) from None
    return resolved


def _cell(config: dict[str, Any]) -> Cell:
    model, precision = config["model"], config["precision"]
    plain: Iterable[str] = (
        "variant", "chunks", "compute_units", "seq_len", "target", "runtime", "weights", "seed", "allow_pickle", "fault",
        "chunk_by", "own_chunks", "pipeline", "limits_for", "copies", "copies_kind", "copies_order", "copies_sizes",
        "head", "mask", "embeddings", "lm_head_splits", "norm", "pad_last_axis", "cache", "inputs", "numerics", "effects",
        "compiler", "device",
        "throughput", "evidence", "latency", "limits",
    )  # fmt: skip
    return Cell(
        model=model["name"],
        family=model["family"],
        size=model["size"],
        precision=precision["name"],
        model_options=model,
        precision_options=precision,
        **{key: config[key] for key in plain},
    )
