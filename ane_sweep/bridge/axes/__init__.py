"""Axes: the fields of a cell (cell.py), each with its values, its place in keys and its refusals. Standard library only.

    chunks: int | str = axis("how many programs the model is cut into", least=1, words=("auto",), shapes=("chunk",))

From that and its default in conf/config.yaml follow: the check of a value and its line in --help (schema.py), the cell
that holds it, whose labels name it and whose keys it enters (tasks.py), which runtimes ignore it, and which
combinations are refused (checks.py). One more axis is one more field of `Cell`, or of the group that it belongs to.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from types import UnionType
from typing import Any, get_args, get_origin

from ane_sweep.bridge.key import NUMBER, Key

RUNS = "RUNS"  # in place of a stage: all in which the cell's runtime runs the program
LOADS = "LOADS"  # and those in which Core ML does, whatever the runtime
# Targets: the oldest OS that a program must run on, as coremltools names it, oldest first. ML Programs begin at iOS15;
# the newest is what coremltools 9.0's `ct.target` knows (a test compares).
TARGETS = ("iOS15", "iOS16", "iOS17", "iOS18", "iOS26")
MACOS_TARGETS = {"macOS12": "iOS15", "macOS13": "iOS16", "macOS14": "iOS17", "macOS15": "iOS18", "macOS26": "iOS26"}
# A cell as a refusal sees it: its fields, and `task`, `compute`, `ios_target`, `runtime` (settled), `honours` (what that
# runtime does), `longest` (positions of the model), `vocabulary` (token ids that it knows).
Asked = Mapping[str, Any]


def since(target: str) -> tuple[str, ...]:
    """Return a target and the newer ones."""
    return TARGETS[TARGETS.index(target) :]


@dataclass(frozen=True)
class Only:
    """A permitted pair: certain values of one axis need the axis `other` to have a value in `among`.

    when   values of the declaring axis that need it; (): all but the default
    why    the sentence that refuses any other pair; {names} stand for values of axes
    """

    other: str
    among: tuple[object, ...]
    why: str
    when: tuple[object, ...] = ()


@dataclass(frozen=True)
class Axis:
    """The rules of one field of the cell.

    key        the allowed values; None for groups and mappings, whose keys are in schema.py
    plain      the value that changes nothing
    enters     stages (or RUNS, LOADS) that get it in `params["options"]`, and so in their key, unless it has its
               default
    shapes     stages whose params tasks.py computes from it in another way
    honoured   the feature that a runtime must support for the axis to have an effect
    unhonoured the sentence that refuses it under other runtimes; "": they run without it and warn
    only       the permitted pairs
    refuses    a function for rules over more than two axes: returns the reason to refuse, or None
    named      whether its value is part of a cell's label; a policy such as latency is not
    late       whether cells had keys before it came: its default is in none of them
    """

    key: Key | None
    plain: object = None
    enters: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    honoured: str | None = None
    unhonoured: str = ""
    only: tuple[Only, ...] = ()
    refuses: Callable[[Asked], str | None] | None = None
    named: bool = True
    late: bool = False

    def refusal(self, name: str, asked: Asked) -> str | None:
        """Return one sentence that says why the axis's value conflicts with other axes, and how to resolve it; None if it does not."""
        value = asked[name]
        if self.honoured and self.honoured not in asked["honours"]:
            return self.unhonoured.format(value=_text(value), **asked) if value != self.plain else None
        for pair in self.only:
            applies = value in pair.when if pair.when else value != self.plain
            if applies and asked[pair.other] not in pair.among:
                return pair.why.format(name=name, value=_text(value), **asked)
        return self.refuses(asked) if self.refuses else None


def axis(
    help: str,
    *,
    choices: tuple[object, ...] = (),
    least: float | None = None,
    most: float | None = None,
    why: str = "",
    words: tuple[str, ...] = (),
    check: Callable[[str, Any], str | None] | None = None,
    plain: object = MISSING,
    enters: tuple[str, ...] = (),
    unhonoured: str = "",
    only: tuple[Only, ...] = (),
    **more: Any,
) -> Any:
    """Return a dataclass field that is an axis: a Key of the field's types with the rules of `Axis`."""
    if plain is MISSING and (enters or unhonoured or not all(pair.when for pair in only)):
        raise TypeError(f"{help}: what enters keys, or is refused, where it is not plain, needs a plain value")
    key = Key((), help, choices, least, words, most, why, check=check)
    known = Axis(key, None if plain is MISSING else plain, enters, unhonoured=unhonoured, only=only, **more)
    return dataclasses.field(default=plain, metadata={"axis": known})


def mapping(*, shapes: tuple[str, ...] = (), honoured: str | None = None, named: bool = True) -> Any:
    """Return a dataclass field for a group or a policy, whose value is a mapping: the command line sets its keys, not the field."""
    return dataclasses.field(metadata={"axis": Axis(None, shapes=shapes, honoured=honoured, named=named)})


def declared(cls: type) -> dict[str, Axis]:
    """Return {field: its Axis} of a dataclass, in field order."""
    found = {}
    for field in fields(cls):
        if (known := field.metadata.get("axis")) is not None:
            found[field.name] = replace(known, key=_typed(known.key, field.type)) if known.key else known
    return found


def refusal(known: Mapping[str, Axis], asked: Asked) -> str | None:
    """Return the first reason why an axis refuses the cell, or None."""
    return next((reason for name, one in known.items() if (reason := one.refusal(name, asked))), None)


def _typed(key: Key, hint: object) -> Key:
    """Return the Key for a type hint such as `int | None` or `list[str]`; a float may be written without a point."""
    parts = _each(hint)
    items = tuple(item for part in parts if get_origin(part) is list for each in get_args(part) for item in _each(each))
    return replace(key, types=_plain(get_origin(part) or part for part in parts), items=_plain(items))


def _each(hint: object) -> tuple[object, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _plain(types: Iterable[object]) -> tuple[type, ...]:
    return tuple(each for one in types if isinstance(one, type) for each in (NUMBER if one is float else (one,)))


def _text(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, list) else value
