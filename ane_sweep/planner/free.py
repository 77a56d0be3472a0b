"""Free values: the values that `best` may choose from without a list of cells, in Hydra's notation.

    precision.weights.bits=interval(2.5,6)     any number from 2.5 to 6; int(interval(2,6)): any whole one
    seq_len=range(64,512,64)                   64, 128, ... below 512
    cuts=interval(0.2,0.8)                     shares of the weights, one for each cut that `chunks` makes; cuts=range(1,6): layers
    precision.overrides.PATTERN=range(2,8)     bits of the weights that match (precision.weights.overrides); or a list: 2,4,6

A saved matrix has the same as text: `axes: {cuts: interval(0.2,0.8)}`. Each trial becomes words that `sweep` accepts.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ane_sweep.errors import ConfigError
from ane_sweep.planner import compose, config, help
from ane_sweep.planner.compose import Composer, IntervalSweep, Override, RangeSweep
from ane_sweep.planner.matrix import SETTINGS, Axis, too_many
from ane_sweep.planner.space import OVERRIDES, Between, Choice, Dimension, Space, named

_BITS = re.compile(re.escape(OVERRIDES) + r"(?P<pattern>[^=]+)=(?P<word>.*)")
MOST_VALUES = 10_000  # of a range
_PROBED = 40  # values of a range that are looked at one by one before anything runs


def space(args: Sequence[str]) -> Space | None:
    """Return the space of a search, or None if all words are fixed. Raises ConfigError with every problem."""
    given = help.grammar().read([word for word in args if not _BITS.fullmatch(word)])
    overrides = compose.parse(given.overrides)
    free = {o.key_or_group: one for o in overrides if (one := _free(o._value, str(o.input_line)))}
    free |= dict(one for word in args if (bits := _BITS.fullmatch(word)) for one in _bits(*bits.groups()))
    composer = Composer(given.config_dir)
    rest = [o for o in overrides if o.key_or_group not in free]
    swept, fixed = ([o for o in rest if o.is_sweep_override() is way] for way in (True, False))
    if not free and not any(o.key_or_group == "sweep" for o in fixed):
        return None
    words = [str(o.input_line) for o in fixed]
    base, listed = config.axes_of(words, swept, composer, leave=set(free))
    free = {**_preset(base.get("sweep"), {*free, *(o.key_or_group for o in overrides)}), **free}
    if not free:
        return None
    if (swept or listed) and not given.multirun and not any(o.key_or_group == "sweep" for o in fixed):
        raise ConfigError([f"{o.input_line} lists several values: add -m to search them" for o in swept])
    if wrong := [problem for name in free if (problem := _no_axis(name))]:
        raise ConfigError(wrong)
    for axis in listed:
        axis.rows = list(axis.rows)
    asked, most = math.prod(axis.count for axis in listed), base["max_cells"]
    if isinstance(most, int) and asked > most:
        raise ConfigError(too_many(asked, "the lists beside the free values", most))
    folder = [] if given.config_dir is None else ["--config-dir", given.config_dir]
    found = Space(folder, words, base, composer, listed, _cut(free, _chunks(free, listed, base)))
    _probe(found)
    return found


def _free(value: object, line: str) -> Dimension | None:
    """Return the values that one override leaves free. Raises ConfigError."""
    if isinstance(value, IntervalSweep):
        low, high = (float(value.start or 0), float(value.end or 0))
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ConfigError(f"{line}: expected interval(low,high) of finite numbers, the lower one first")
        if isinstance(value.start, int):
            return Choice(tuple(range(int(low), int(high) + 1)), ordered=True)
        return Between(low, high)
    if isinstance(value, RangeSweep):
        count = compose.range_size(value, line)
        if not 0 < count <= MOST_VALUES:
            raise ConfigError(f"{line}: {count:,} values; expected 1 to {MOST_VALUES:,}; the end is not among them")
        return Choice(
            tuple(sorted(round(one, 9) if isinstance(one, float) else one for one in value.range())), ordered=True
        )
    return None


def _bits(pattern: str, word: str) -> list[tuple[str, Dimension]]:
    """Return the free bits in `precision.overrides.PATTERN=WORD`. Raises ConfigError."""
    line = f"{OVERRIDES}{pattern}={word}"
    if '"' in pattern or "\\" in pattern:
        raise ConfigError(f"{line}: a pattern of names has neither quotes nor backslashes")
    override: Override = compose.parse([f"bits={word}"])[0]
    one = _free(override._value, line)
    if isinstance(one, Between):
        one = Choice(tuple(range(math.ceil(one.low), math.floor(one.high) + 1)), ordered=True)
    if one is None:
        listed = [str(value) for value in override.sweep_iterator()] if override.is_sweep_override() else [word]
        if not all(text.isdecimal() for text in listed):
            raise ConfigError(f"{line}: expected bits as range(2,8), interval(2,8) or 2,4,6")
        one = Choice(tuple(sorted({int(text) for text in listed})), ordered=True)
    if not one.values:
        raise ConfigError(f"{line}: no whole number of bits lies there")
    return [(f"{OVERRIDES}{pattern}", one)]


def _preset(sweep: object, taken: set[str]) -> dict[str, Dimension]:
    """Return the free values of a saved matrix. Raises ConfigError."""
    axes = sweep.get("axes") if isinstance(sweep, dict) else None
    found: dict[str, Dimension] = {}
    for name, text in axes.items() if isinstance(axes, dict) else ():
        if isinstance(text, str) and name not in taken:
            if bits := _BITS.fullmatch(f"{name}={text}"):
                found |= dict(_bits(*bits.groups()))
            elif one := _free(compose.parse([f"key={text}"])[0]._value, f"sweep.axes.{name}: {text}"):
                found[name] = one
    return found


def _no_axis(name: str) -> str | None:
    head = name.split(".")[0]
    if name in ("model", "precision", "sweep"):
        return f"{name}: its options have no order; list them, or precision='glob(*)'"
    return f"{name}: a setting of the whole sweep and nothing to search; give one value" if head in SETTINGS else None


def _chunks(free: Mapping[str, Dimension], listed: Sequence[Axis], base: Mapping[str, object]) -> list[object]:
    """Return the numbers of chunks that a search may try."""
    if isinstance(one := free.get("chunks"), Choice):
        return [*one.values]
    rows = (axis for axis in listed if "chunks" in axis.keys)
    return next(([row[axis.keys.index("chunks")] for row in axis.rows] for axis in rows), [base["chunks"]])


def _cut(free: dict[str, Dimension], counts: Sequence[object]) -> dict[str, Dimension]:
    """Return the free dimensions with one place for each cut, if there are several cuts."""
    if "cuts" not in free:
        return free
    if wrong := [one for one in counts if not isinstance(one, int)]:
        raise ConfigError(f"cuts are free and chunks={wrong[0]}: their number must be known; give chunks a number")
    if (chunks := max(one for one in counts if isinstance(one, int))) <= 2:
        return free
    places = {f"cuts.{number}": free["cuts"] for number in range(1, chunks)}
    return {name: one for name, one in free.items() if name != "cuts"} | places


def _probe(found: Space) -> None:
    """Drop values that no cell may have. Raises ConfigError if none remain, or a cell can never be made."""
    seen: dict[str, tuple[object, ...]] = {}
    for name, one in found.free.items():
        kind = "cuts" if name.startswith("cuts.") else OVERRIDES if name.startswith(OVERRIDES) else name
        mark = f"{kind} {one}"
        if mark not in seen:
            seen[mark] = _possible(found, name, one)
        if isinstance(one, Choice):
            found.free[name] = Choice(seen[mark], ordered=True)


def _possible(found: Space, name: str, one: Dimension) -> tuple[object, ...]:
    """Return the values that every listed precision accepts; an interval stays as it is if its ends are possible."""
    if isinstance(one, Between):
        drawn: list[int | float] = [one.low, one.high, one.low + (one.high - one.low) / math.e]
    else:
        every = len(one.values) <= _PROBED
        drawn = list(range(len(one.values))) if every else [0, len(one.values) // 2, len(one.values) - 1]
    problems = {at: problem for at in drawn if (problem := _problem(found, name, at))}
    if len(problems) == len(drawn) or (problems and (isinstance(one, Between) or len(drawn) < len(one.values))):
        said = next(iter(problems.values()))
        raise ConfigError(said if said.startswith(name) else f"{name}: {said}")
    if isinstance(one, Between):
        return ()
    if problems:
        left = ", ".join(str(one.values[int(at)]) for at in problems)
        found.notes.append(f"{name}: {left} left out: {next(iter(problems.values()))}")
    return tuple(value for at, value in enumerate(one.values) if at not in problems)


def _problem(found: Space, name: str, at: int | float) -> str | None:
    """Return the reason why a value is impossible while all other keys have their base values, or None."""
    firsts = {named(axis): 0 for axis in found.listed}
    choice = next((axis for axis in found.listed if "precision" in axis.keys), None)
    for row in range(len(list(choice.rows)) if choice else 1):
        rows = {**firsts, **({named(choice): row} if choice else {})}
        more: dict[str, object] = {"chunks": 2} if name.split(".")[0] == "cuts" else {}
        axes = [axis for axis in found.listed if not more or "chunks" not in axis.keys]
        only = replace(found, listed=axes, free={name: found.free[name]})
        try:
            only.cell({**rows, name: at}, **more)
        except ConfigError as error:
            return error.problems[0]
    return None
