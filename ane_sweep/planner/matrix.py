"""The product of the axes, in plain Python: its parts and its size are checked before it is made."""

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from ane_sweep.bridge import settings
from ane_sweep.bridge.cell import Cell, canonical_json
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.errors import ConfigError
from ane_sweep.planner import architecture, compose, schema, unread
from ane_sweep.planner.compose import Composer

SETTINGS = sorted(field.name for field in fields(RunSettings))


@dataclass
class Request:
    """A requested matrix: cells in order, the axes that vary, and how to run them."""

    cells: list[Cell]
    axes: list[str]
    settings: RunSettings
    notes: list[str] = field(default_factory=list)


@dataclass
class Axis:
    """One dimension of the product: several keys that move together (one key, unless paired), with as many values a row.

    count   number of rows, checked against a limit before they are listed
    added   whether its keys may be new (+key=a,b)
    """

    keys: tuple[str, ...]
    count: int
    first: tuple[object, ...]
    rows: Iterable[tuple[object, ...]]
    added: bool = False


Options = dict[tuple[str, object], object]  # (group, name) -> what the option holds


def expand(base: dict[str, object], axes: list[Axis], composer: Composer, fixed: list[str]) -> Request:
    """Return the cells of a composed configuration over the axes. Raises ConfigError with every problem found."""
    found = schema.problems(compose.resolve(base) if _interpolated(base) else base)
    found += [problem for axis in axes for key in axis.keys if (problem := _no_axis(key))]
    most = base.get("max_cells")
    if not isinstance(most, int) or schema.KEYS["max_cells"].problem("max_cells", most):
        raise ConfigError(found)
    axes = [axis for axis in axes if not any(map(_no_axis, axis.keys))]
    asked = math.prod(axis.count for axis in axes)
    if asked > most:
        sizes = " x ".join(f"{', '.join(axis.keys)}: {axis.count:,}" for axis in axes)
        raise ConfigError([*found, too_many(asked, sizes, most)])
    for axis in axes:
        axis.rows = list(axis.rows)
    options, unknown = _compose_options(axes, composer, fixed)
    found += unknown + _problems_of_values(axes, options, base)
    if found:
        raise ConfigError(list(dict.fromkeys(found)))
    return _product(base, axes, options, asked, _exclude_rules(base, composer))


def _no_axis(key: str) -> str | None:
    head = key.split(".")[0]
    if head in SETTINGS:
        return f"{key}: several values, but it is a setting of the whole sweep and no axis; give one"
    if key in schema.LABELS:
        return f"{key}: a name for people that changes nothing in the work, and no axis; give one"
    return None if key in schema.KEYS or head in schema.GROUP_KEYS else unread.unknown_key(key)


def too_many(asked: int, of_what: str, most: int) -> str:
    largest = int(schema.KEYS["max_cells"].most or 0)
    way = f"give fewer values, or max_cells={asked}" if asked <= largest else "give fewer values"
    return f"this asks for {asked:,} cells ({of_what}), more than max_cells={most:,}; {way}"


def _problems_of_values(axes: list[Axis], options: Options, base: dict[str, object]) -> list[str]:
    """Return the problems of each value by itself; keys of a group are checked in each option when cells are made."""
    found: list[str] = []
    for axis in axes:
        for index, key in enumerate(axis.keys):
            group, _, rest = key.partition(".")
            if rest and group in schema.GROUP_KEYS:
                held = [option for (kind, _), option in options.items() if kind == group] or [base[group]]
                lacking = [one.get("name") for one in held if isinstance(one, dict) and not _holds(one, rest)]
                found += [f"{key}: {group}={name} has no such key" for name in lacking if not axis.added]
            elif key in schema.KEYS:
                found += [
                    problem for row in axis.rows
                    if not _interpolated(row[index]) and (problem := schema.KEYS[key].problem(key, row[index]))
                ]  # fmt: skip
    return found


def _holds(option: object, path: str) -> bool:
    for part in path.split("."):
        if not isinstance(option, dict) or part not in option:
            return False
        option = option[part]
    return True


def _interpolated(value: object) -> bool:
    return "${" in json.dumps(value, default=str)


def _exclude_rules(base: dict[str, object], composer: Composer) -> list[dict[str, object]]:
    sweep = base.get("sweep")
    rules = (sweep.get("exclude") if isinstance(sweep, dict) else None) or []
    return [
        {key: composer.expand_globs(key, value) if isinstance(value, list) else value for key, value in rule.items()}
        for rule in rules
    ]


def _product(
    base: dict[str, object], axes: list[Axis], options: Options, asked: int, exclude: list[dict[str, object]]
) -> Request:
    follow = _interpolated([base, list(options.values()), [axis.rows for axis in axes]])
    cells: dict[str, Cell] = {}
    found: dict[str, None] = {}
    used: set[int] = set()
    groups = Groups(base, options, check=not follow)
    for choice in itertools.product(*(axis.rows for axis in axes)):
        assigned = {key: value for axis, values in zip(axes, choice) for key, value in zip(axis.keys, values)}
        if hits := [i for i, rule in enumerate(exclude) if _matches(rule, assigned, base)]:
            used.update(hits)
            continue
        config = {**base, **groups.compose(assigned)}
        for key, value in assigned.items():
            if key.split(".")[0] not in schema.GROUP_KEYS:
                _assign(config, key, value)
        if follow:
            config = compose.resolve(config)
            found.update(dict.fromkeys(schema.problems(config)))
        if not (found or groups.found):
            cell = Cell.from_config(config)
            cells.setdefault(cell.key, cell)
    if found := {**found, **groups.found}:
        raise ConfigError(list(found))
    if not cells:
        raise ConfigError(f"the sweep's exclude rules leave none of its {asked} cells; see conf/sweep/")
    notes = [f"sweep.exclude: {rule} excluded nothing" for i, rule in enumerate(exclude) if i not in used]
    keys = [key for axis in axes for key in axis.keys]
    return Request(list(cells.values()), keys, settings.read_run(base), notes)


def varying(keys: Iterable[str], cells: list[Cell]) -> list[str]:
    return [key for key in keys if len({canonical_json(cell.value(key)) for cell in cells}) > 1]


def _compose_options(axes: list[Axis], composer: Composer, fixed: list[str]) -> tuple[Options, list[str]]:
    """Return the options that the axes name, each composed once, and the problems of unknown names."""
    composed: Options = {}
    found: list[str] = []
    for key, column in ((key, [row[i] for row in axis.rows]) for axis in axes for i, key in enumerate(axis.keys)):
        if key in schema.GROUP_KEYS:
            for value in column:
                if not (isinstance(value, str) and composer.has(key, value)):
                    found.append(unread.unknown_option(key, value, composer.options(key)))
                elif (key, value) not in composed:
                    try:
                        composed[key, value] = _option(composer, fixed, key, value)
                    except ConfigError as error:
                        found += error.problems
    return composed, found


def _option(composer: Composer, fixed: list[str], group: str, name: str) -> object:
    """Compose an option of a group together with the words of the command line. Raises ConfigError."""
    try:
        return composer.compose([*fixed, f"{group}={compose.as_text(name)}"])[group]
    except ConfigError as error:
        lacking = unread.lacking_key(error)
        raise ConfigError(f"{lacking}: {group}={name} has no such key" if lacking else error.problems) from None


class Groups:
    """The model and precision of each cell, composed once for all cells with the same choice."""

    def __init__(self, base: dict[str, object], options: Options, check: bool):
        self.base, self.options, self.check = {group: base[group] for group in schema.GROUP_KEYS}, options, check
        self.made: dict[str, dict[str, object]] = {}
        self.found: dict[str, None] = {}

    def compose(self, assigned: Mapping[str, object]) -> dict[str, object]:
        chosen = {key: value for key, value in assigned.items() if key.split(".")[0] in schema.GROUP_KEYS}
        mark = repr(chosen)
        if mark not in self.made:
            self.made[mark] = self._make(chosen)
        return self.made[mark]

    def _make(self, chosen: Mapping[str, object]) -> dict[str, object]:
        """Return the chosen options with keys set inside them afterwards, in Hydra's order."""
        config = {**self.base, **{key: self.options[key, name] for key, name in chosen.items() if key in self.base}}
        for key, value in chosen.items():
            if key not in self.base:
                _assign(config, key, value)
        if self.check:
            self.found.update(dict.fromkeys(schema.problems_of_groups(config)))
        return config


def _assign(config: dict[str, object], key: str, value: object) -> None:
    """Set a dotted key; mappings on the way are copied, because other cells share them."""
    *path, last = key.split(".")
    for part in path:
        below = config.get(part)
        config[part] = config = dict(below) if isinstance(below, dict) else {}
    config[last] = value


def _matches(rule: Mapping[str, object], assigned: Mapping[str, object], base: Mapping[str, object]) -> bool:
    """Return True if a cell matches an exclude rule on every axis that the rule names."""

    def value(key: str) -> object:
        if key in assigned:
            return assigned[key]
        node = architecture.at(base, key)
        return node.get("name") if isinstance(node, dict) else node

    return all(value(key) in (wanted if isinstance(wanted, list) else [wanted]) for key, wanted in rule.items())
