"""Declarations of modules: each module has one literal, which is read from its source without an import, so that
nothing heavy is loaded.

    STAGE = Stage(order=30, many="conversions", ...)       in ane_sweep/worker/stages/convert.py

The file's name is the registration: a folder's modules are its members, those that begin with `_` are helpers.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import ane_sweep
from ane_sweep.errors import ConfigError

HOME = Path(ane_sweep.__file__).parents[1]  # what holds the package
T = TypeVar("T")


class Declared(dict[str, T], Generic[T]):
    """The declarations of one package's modules by name, in order. Raises ConfigError with the known names for an unknown one."""

    def __init__(self, package: str, literal: str, kind: type[T], order: Callable[[T], int] | None = None):
        found = [(path.stem, read(path, literal, kind)) for path in modules(folder(package))]
        super().__init__(sorted(found, key=lambda item: order(item[1])) if order else found)
        self.package, self.literal = package, literal

    def __missing__(self, name: str) -> T:
        what, path = self.literal.lower(), f"{self.package.replace('.', '/')}/{name}.py"
        raise ConfigError(f"unknown {what} {name!r}; known: {', '.join(self)}. To add it, write {path}")


def folder(package: str) -> Path:
    """Return the path of one of our packages, such as `ane_sweep.worker.stages`."""
    return HOME.joinpath(*package.split("."))


def modules(where: Path) -> list[Path]:
    """Return the modules of a folder, sorted, without the helpers, whose names begin with `_`."""
    return sorted(path for path in where.glob("*.py") if not path.stem.startswith("_"))


def read(path: Path, literal: str, kind: type[T]) -> T:
    """Return the declaration `LITERAL = Kind(name=value, ...)` of a module as a `kind`. Raises ConfigError that names the file."""
    found = _pattern(literal).search(path.read_text(encoding="utf-8"))
    form = f"{path}: expected one top-level `{literal} = {kind.__name__}(name=value, ...)`"
    if found is None:
        raise ConfigError(form)
    try:
        call = ast.parse(found[1], str(path), "eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != kind.__name__ or call.args:
            raise ConfigError(form)
        values = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{form}, its values literals ({error})") from None
    if problems := _problems(values, kind):
        raise ConfigError([f"{path}: {literal}: {problem}" for problem in problems])
    return kind(**values)


def without(text: str, *literals: str) -> str:
    """Return a module's source without the declarations named."""
    for literal in literals:
        text = _pattern(literal).sub("", text)
    return text


def _pattern(literal: str) -> re.Pattern[str]:
    """Return the pattern of a declaration: one line, or indented lines up to a closing bracket at the margin."""
    return re.compile(rf"^{literal} = (\w+\((?:.*\)|\n(?:[ ].*\n|\n)*\)))[ ]*(?:#.*)?$", re.MULTILINE)


def _problems(values: dict[str, object], kind: Any) -> list[str]:
    hints = get_type_hints(kind)
    known = {field.name: field.default is MISSING and field.default_factory is MISSING for field in fields(kind)}
    found = [f"{name}: nothing reads this; there are: {', '.join(known)}" for name in values if name not in known]
    found += [f"{name}: missing" for name, needed in known.items() if needed and name not in values]
    wrong = [name for name in values if name in known and not _fits(values[name], hints[name])]
    return found + [
        f"{name}={values[name]!r}: expected {getattr(hints[name], '__name__', hints[name])}" for name in wrong
    ]


def _fits(value: object, hint: object) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(one, get_args(hint)[0]) for one in value)
    if hint is int or hint is float:
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    expected = get_origin(hint) or hint
    return isinstance(expected, type) and isinstance(value, expected)
