"""The space of a search: listed values, which are tried one at a time, and free values."""

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.key import format_value
from ane_sweep.planner import compose, config
from ane_sweep.planner.compose import Composer
from ane_sweep.planner.matrix import Axis, Request, expand

OVERRIDES = "precision.overrides."
RULES = "precision.weights.overrides"
_NAME = re.compile(r"(?!(?:null|true|false|nan|inf)\Z)[A-Za-z_][A-Za-z_0-9]*")
_DIGITS = 3  # of a number that is drawn


@dataclass(frozen=True)
class Choice:
    """Values in a list; `ordered` if the distance between values is meaningful."""

    values: tuple[object, ...]
    ordered: bool = False

    def at(self, drawn: float) -> object:
        return self.values[int(drawn)]

    def __str__(self) -> str:
        many = f"{self.values[0]}, {self.values[1]}, ... {self.values[-1]}" if len(self.values) > 6 else ""
        return many or ", ".join(map(str, self.values))


@dataclass(frozen=True)
class Between:
    """Any number from one to another."""

    low: float
    high: float

    def at(self, drawn: float) -> float:
        return min(self.high, max(self.low, float(f"{drawn:.{_DIGITS}g}")))

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


Dimension = Choice | Between
Drawn = Mapping[str, int | float]


@dataclass
class Space:
    """The space of a search: listed values, each taken one at a time, and free values.

    words    flags; fixed: words with one value; listed: the axes with lists; free: free dimensions by name
    base     the configuration of the fixed words
    notes    warnings about dropped parts; start: the first drawing of a search
    """

    words: list[str]
    fixed: list[str]
    base: dict[str, object]
    composer: Composer
    listed: list[Axis]
    free: dict[str, Dimension]
    notes: list[str] = field(default_factory=list)
    start: dict[str, int | float] = field(default_factory=dict)

    @property
    def dimensions(self) -> dict[str, Dimension]:
        """Return each dimension by name; a list's values are the indices of its rows."""
        return {named(axis): Choice(tuple(axis.rows)) for axis in self.listed} | self.free

    def count(self) -> float:
        """Return the number of cells, infinite if a dimension is continuous."""
        return math.prod(len(one.values) if isinstance(one, Choice) else math.inf for one in self.dimensions.values())

    def all(self) -> Iterator[dict[str, int | float]]:
        """Yield all combinations, if every dimension is a list."""
        sizes = [range(len(one.values)) for one in self.dimensions.values() if isinstance(one, Choice)]
        return (dict(zip(self.dimensions, row)) for row in itertools.product(*sizes))

    def middles(self) -> Iterator[dict[str, int | float]]:
        """Yield each combination of the listed axes, with the middle of every free dimension."""
        free = {
            name: len(one.values) // 2 if isinstance(one, Choice) else (one.low + one.high) / 2
            for name, one in self.free.items()
        }
        for row in itertools.product(*(range(len(list(axis.rows))) for axis in self.listed)):
            yield dict(zip(map(named, self.listed), row)) | _apart(free, self.free)

    def any(self, chance: random.Random) -> dict[str, int | float]:
        """Return a random drawing."""
        return {
            name: chance.uniform(one.low, one.high) if isinstance(one, Between) else chance.randrange(len(one.values))
            for name, one in self.dimensions.items()
        }

    def values(self, drawn: Drawn) -> dict[str, object]:
        """Return the value of each varying key in a drawing, as text or number for people."""
        said: dict[str, object] = {}
        for axis in self.listed:
            said |= dict(zip(axis.keys, list(axis.rows)[int(drawn[named(axis)])]))
        for name, one in self.free.items():
            if name in drawn:
                value = one.at(drawn[name])  # of a place to cut a whole number means a layer: 3 -> `layer:3`
                said[name] = f"layer:{value}" if name.split(".")[0] == "cuts" and isinstance(value, int) else value
        return said

    def assigned(self, drawn: Drawn) -> dict[str, object]:
        """Return {key of a cell: its value} of a drawing."""
        values = self.values(drawn)
        bits = {name.removeprefix(OVERRIDES): one for name, one in values.items() if name.startswith(OVERRIDES)}
        own = {key: value for key, value in values.items() if not key.startswith((OVERRIDES, "cuts."))}
        if any(name.split(".")[0] == "cuts" for name in values):
            own["cuts"] = self._cuts(values)
        return own | ({RULES: [{"match": name, "bits": one} for name, one in bits.items()]} if bits else {})

    def cell(self, drawn: Drawn, **more: object) -> Cell:
        """Return the cell of a drawing. Raises ConfigError for an impossible one."""
        assigned = self.assigned(drawn) | more
        row = tuple(assigned.values())
        return expand(self.base, [Axis(tuple(assigned), 1, row, [row], added=True)], self.composer, self.fixed).cells[0]

    def trial(self, drawn: Drawn) -> list[str]:
        """Return the command-line words of a sweep with this one cell."""
        added = {RULES, *(key for axis in self.listed if axis.added for key in axis.keys)}
        said = self.assigned(drawn).items()
        return [*self.words, *self.fixed, *(f"{'++' if key in added else ''}{key}={_text(one)}" for key, one in said)]

    def request(self, drawn: Drawn) -> Request:
        """Return the request of this one cell, with the other options of the search. Raises ConfigError."""
        found = config.load(self.trial(drawn), leave=())
        found.axes = self.axes
        return found

    @property
    def axes(self) -> list[str]:
        """Return the keys that vary between cells."""
        keys = [key for axis in self.listed for key in axis.keys]
        keys += [RULES if name.startswith(OVERRIDES) else re.sub(r"^cuts\.\d+$", "cuts", name) for name in self.free]
        return list(dict.fromkeys(keys))

    def _cuts(self, values: Mapping[str, object]) -> list[float | str] | None:
        """Return the places of a cell's cuts in order, or None for no cut; whole numbers are layers."""
        drawn = [value for name, value in values.items() if name.split(".")[0] == "cuts"]
        places = [value for value in drawn if isinstance(value, (float, str))]
        if isinstance(chunks := values.get("chunks"), int):
            places = places[: chunks - 1]
        return sorted(places, key=lambda place: int(place.split(":")[1]) if isinstance(place, str) else place) or None

    def __str__(self) -> str:
        return "; ".join(f"{name}: {one}" for name, one in self.free.items())


def named(axis: Axis) -> str:
    return ",".join(axis.keys)


def _text(value: object) -> str:
    """Return a value in Hydra's grammar; plain names and places to cut need no quotes."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        rules = (f'{{match:"{rule["match"]}",bits:{rule["bits"]}}}' for rule in value)
        return f"[{','.join(rules)}]"
    bare = isinstance(value, list) or (isinstance(value, str) and _NAME.fullmatch(value))
    return format_value(value) if bare else compose.as_text(value)


def _apart(middles: dict[str, int | float], free: Mapping[str, Dimension]) -> dict[str, int | float]:
    """Return the middles with several cuts spread apart, as cuts at the same place would be one cut."""
    cuts = [name for name in middles if name.startswith("cuts.")]
    for number, name in enumerate(cuts, 1):
        one, share = free[name], number / (len(cuts) + 1)
        middles[name] = (
            int(share * len(one.values)) if isinstance(one, Choice) else one.low + share * (one.high - one.low)
        )
    return middles
