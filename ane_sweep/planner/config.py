"""The way from the command line to cells: this module reads words, Hydra composes options (compose.py), and plain
Python makes the product (matrix.py).

Hydra composes every option only once. Composing each cell with it would take some 40 ms per cell, and a thousand cells
longer to plan than a small one to run.
"""

import itertools
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from ane_sweep.errors import ConfigError
from ane_sweep.planner import compose, help, inherited, schema, shorthand, unread
from ane_sweep.planner.compose import Composer, Override, pass_to_hydra
from ane_sweep.planner.matrix import SETTINGS, Axis, Request, expand, too_many, varying

__all__ = ["Composer", "Request", "load", "pass_to_hydra"]
_SHOWN = 100  # values of an axis that are looked at one by one where something is wrong


def load(args: list[str], leave: Collection[str] | None = None) -> Request:
    """Parse, compose, expand and check a request. Raises ConfigError with every problem found, before anything runs.

    leave   see `axes_of`
    """
    given = help.grammar().read(args)
    composer = Composer(given.config_dir)
    overrides = compose.parse(given.overrides)
    swept = [o for o in overrides if o.is_sweep_override()]
    if swept and not (given.multirun or any(o.key_or_group == "sweep" for o in overrides)):
        raise ConfigError([f"{o.input_line} lists several values: add -m to run them all" for o in swept])
    fixed = [str(o.input_line) for o in overrides if not o.is_sweep_override()]
    kept = [line for o in swept if o.key_or_group == "sweep" for line in _split_presets(o, composer)]
    swept = [o for o in swept if o.key_or_group != "sweep"]
    matrices = [[*fixed, line] for line in kept] or [fixed]
    requests = [expand(*axes_of(words, swept, composer, leave), composer, words) for words in matrices]
    request = requests[0] if len(requests) == 1 else _union(requests, kept)
    named = {option for cell in request.cells for option in (("model", cell.model), ("precision", cell.precision))}
    if refused := [said for group, name in sorted(named) if (said := composer.refused(group, name))]:
        raise ConfigError(refused)
    repeats = [cell.latency["repeats"] for cell in request.cells]
    timings = sum(one for one in repeats if isinstance(one, int))  # a word stands for a few
    if timings > 10 * request.settings.max_cells:
        raise ConfigError(
            f"latency.repeats: {timings:,} timings over {len(request.cells):,} cells, more than ten for each of "
            f"max_cells={request.settings.max_cells:,}; give fewer repeats or cells, or a larger max_cells"
        )
    tracking, told = inherited.complete_tracking(request.settings.tracking)
    settings = replace(request.settings, tracking=tracking)
    axes = varying(request.axes, request.cells)
    return replace(
        request, axes=axes, settings=settings, notes=[*request.notes, *help.own_notes(given.config_dir), *told]
    )


def _split_presets(override: Override, composer: Composer) -> list[str]:
    """Split `+sweep=a,b` into one word for each matrix."""
    names = list(itertools.islice(composer.values(override)[1], _SHOWN))
    if unknown := [name for name in names if not composer.has("sweep", name)]:
        raise ConfigError([unread.unknown_option("sweep", name, composer.options("sweep")) for name in unknown])
    return [f"{_sign(override)}sweep={name}" for name in names]


def axes_of(
    fixed: list[str], swept: list[Override], composer: Composer, leave: Collection[str] | None = None
) -> tuple[dict[str, object], list[Axis]]:
    """Return (the first configuration, the axes). Raises ConfigError.

    leave   keys of a saved matrix (+sweep=NAME), and all its text values, that the caller expands (free.py); None:
            there are none
    """
    axes = [_command_line_axis(o, composer) for o in swept]
    firsts = [f"{_sign(o)}{axis.keys[0]}={compose.as_text(axis.first[0])}" for o, axis in zip(swept, axes)]
    try:
        base = composer.compose([*fixed, *firsts])
    except ConfigError as error:
        raise ConfigError(_problems_of_words(composer, fixed, firsts, axes) or error.problems) from None
    taken = [axis.keys[0] for axis in axes] + [o.key_or_group for o in compose.parse(fixed)] + [*(leave or ())]
    axes += _preset_axes(base, composer, set(taken), texts=leave is None)
    if twice := [key for key, count in Counter(key for axis in axes for key in axis.keys).items() if count > 1]:
        raise ConfigError([f"{key}: several values, and that twice; give one list" for key in twice])
    return base, axes


def _problems_of_words(composer: Composer, fixed: list[str], firsts: list[str], axes: list[Axis]) -> list[str]:
    """Return the problems of each word by itself; for a list, those of its first value and its unknown options."""
    lines = [*fixed, *firsts]
    words = [(line, one, one.key_or_group) for line, one in zip(lines, compose.parse(lines)) if not one.is_delete()]
    options = [line for line, one, key in words if key in schema.GROUP_KEYS and one.value() in composer.options(key)]
    found = [problem for line in lines for problem in composer.problems(line, options)]
    for axis in axes:
        if (key := axis.keys[0]) in schema.GROUP_KEYS:
            for name in [row[0] for row in itertools.islice(axis.rows, _SHOWN)]:
                if not composer.has(key, name):
                    found.append(unread.unknown_option(key, name, composer.options(key)))
                elif name not in composer.options(key):  # a checkpoint, of which there may be none
                    found += composer.problems(f"{key}={compose.as_text(name)}")
    return list(dict.fromkeys(found))


def _union(requests: list[Request], kept: list[str]) -> Request:
    """Merge saved matrices: all different cells, predictions for all chips. Raises ConfigError if settings differ."""
    chips = list(dict.fromkeys(chip for request in requests for chip in request.settings.chips))
    requests = [replace(request, settings=replace(request.settings, chips=chips)) for request in requests]
    first = requests[0]
    for other, line in zip(requests, kept):
        if differ := [key for key in SETTINGS if getattr(other.settings, key) != getattr(first.settings, key)]:
            raise ConfigError(
                f"{kept[0]} and {line} cannot be one sweep: they set {', '.join(differ)} differently; run one after the other"
            )
    cells = {cell.key: cell for request in requests for cell in request.cells}
    if len(cells) > first.settings.max_cells:
        raise ConfigError(too_many(len(cells), " and ".join(kept), first.settings.max_cells))
    axes = dict.fromkeys(axis for request in requests for axis in request.axes)
    axes |= dict.fromkeys(key for key in schema.KEYS if key.split(".")[0] not in (*SETTINGS, "limits"))
    notes = dict.fromkeys(note for request in requests for note in request.notes)
    return Request(list(cells.values()), list(axes), first.settings, list(notes))


def _sign(override: Override) -> str:
    return {"ADD": "+", "FORCE_ADD": "++"}.get(override.type.name, "")


def _command_line_axis(override: Override, composer: Composer) -> Axis:
    count, listed = composer.values(override)
    values = iter(listed)
    first = next(values)
    keys = (override.key_or_group,)
    rows = (shorthand.expand_axis(keys, (value,)) for value in itertools.chain([first], values))
    return Axis(keys, count, (first,), rows, added=bool(_sign(override)))


def _preset_axes(base: dict[str, object], composer: Composer, taken: set[str], texts: bool = True) -> list[Axis]:
    """Return the axes and paired axes of conf/sweep/NAME.yaml; a key on the command line wins over the preset's."""
    sweep = base.get("sweep") or {}
    found = schema.sweep_problems(sweep)
    if found or not isinstance(sweep, dict):
        raise ConfigError(found)
    axes = []
    for written, values in (sweep.get("axes") or {}).items():
        name = shorthand.SHORT.get(written, written)
        if isinstance(values, str) and (name in taken or not texts):
            continue
        if not isinstance(values, list) or not values:
            free = "; free values are searched by `ane-sweep best`" if isinstance(values, str) else ""
            found.append(f"sweep.axes.{name}: expected a list of values, got {values!r}{free}")
        elif name not in taken:
            axes.append(_axis((name,), [(value,) for value in composer.expand_globs(name, values)]))
    for pair in sweep.get("pairs") or []:
        full = {shorthand.SHORT.get(name, name): values for name, values in pair.items()}
        columns = {name: values for name, values in full.items() if name not in taken}
        if len({len(values) for values in pair.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(values)}" for name, values in pair.items())
            found.append(f"sweep.pairs: paired axes need lists of one length: {lengths}")
        elif any(columns.values()):
            axes.append(_axis(tuple(columns), list(zip(*columns.values()))))
    if found:
        raise ConfigError(found)
    return axes


def _axis(keys: tuple[str, ...], rows: list[tuple[object, ...]]) -> Axis:
    return Axis(keys, len(rows), rows[0], [shorthand.expand_axis(keys, row) for row in rows])
