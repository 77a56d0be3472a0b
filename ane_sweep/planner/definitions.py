"""A check of the definition that model.path names, by reading its file: none of its code is run.

Only certain errors are refused. A definition that cannot be understood by reading (decorated, assigned, imported from
elsewhere) passes; the worker, which builds the module, then reports its errors.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ane_sweep.bridge.plugins import find_spec
from ane_sweep.errors import ConfigError, suggestion

_DEEPEST = 20  # imports and base classes that are followed
_NAMED = 20  # names in a message
# A file with one of these may define more names.
_OPENERS = {"globals", "exec", "setattr", "__getattr__", "vars", "locals"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Scope:
    """The content of a file, and the folders in which its absolute imports are searched."""

    path: Path
    roots: Sequence[Path]
    tree: ast.Module


def check(path: str, file: Path | None, kwargs: Mapping[str, object], inputs: Mapping[str, object] | None) -> None:
    """Raise ConfigError if `path` names no definition, one that gives no module, or one that cannot take its arguments
    or inputs.

    path    FILE.py:NAME or PACKAGE.MODULE:NAME; `file` is the path of FILE.py
    """
    place, _, name = path.rpartition(":")
    roots = [*([file.parent] if file else []), Path.cwd()]
    scope = _read(file or _module_file(place, roots), roots)
    first, _, deeper = name.partition(".")
    found = _definition(scope, first) if scope else None
    if found is None or deeper:
        return
    where, node = found
    if isinstance(node, ast.ClassDef):
        problem = _of_class(where, node, kwargs, inputs)
    elif isinstance(node, ast.FunctionDef):
        problem = _of_function(where, node, kwargs, inputs)
    elif isinstance(node, (ast.Constant, ast.List, ast.Dict, ast.Set, ast.JoinedStr)):
        problem = "is a value; expected a torch.nn.Module, or a class or function that gives one"
    else:
        problem = None
    if problem:
        raise ConfigError(f"model.path={path}: {name} {problem}")


def _read(path: Path | None, roots: Sequence[Path]) -> Scope | None:
    if path is None or path.suffix != ".py":
        return None
    try:
        return Scope(path, roots, ast.parse(path.read_bytes()))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _module_file(name: str, roots: Sequence[Path]) -> Path | None:
    """Return the file of a module by its full name, or None."""
    spec = find_spec(name, [str(root) for root in roots])
    return Path(spec.origin) if spec and spec.origin else None


def _definition(scope: Scope, name: str, deep: int = 0) -> tuple[Scope, ast.AST] | None:
    """Return the scope and node that define a name, or None if reading cannot find them. Raises ConfigError for an unknown name."""
    named: dict[str, list[ast.AST]] = {}
    stars: list[ast.ImportFrom] = []
    for statement in _statements(scope.tree.body):
        for one, node in _bound(statement):
            named.setdefault(one, []).append(node)
            stars += [node] if one == "*" and isinstance(node, ast.ImportFrom) else []
    if len(named.get(name, [])) == 1 and deep < _DEEPEST:
        (node,) = named[name]
        return _imported(scope, node, name, deep) if isinstance(node, ast.ImportFrom) else (scope, node)
    if name in named:
        return None
    for star in stars:
        if found := _imported(scope, star, name, deep):
            return found
    opened = {one.id for one in ast.walk(scope.tree) if isinstance(one, ast.Name)} | set(named)
    if stars or opened & _OPENERS or deep:
        return None
    imports = (ast.Import, ast.ImportFrom)
    has = [one for one, (node, *_) in named.items() if not one.startswith("_") and not isinstance(node, imports)]
    raise ConfigError(
        f"model.path={scope.path.name}:{name}: {scope.path} has no {name!r}{suggestion(name, has)}; it has: "
        f"{', '.join(sorted(has)[:_NAMED]) or 'nothing'}"
    )


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield every statement that runs when the file is imported."""
    for statement in body:
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for block in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, block, []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """Yield (name, node) of each name that a statement binds; the node of an assignment to one name is its value."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name, statement
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name.partition(".")[0], statement) for alias in statement.names)
    elif isinstance(statement, ast.Assign) and all(isinstance(target, ast.Name) for target in statement.targets):
        yield from ((target.id, statement.value) for target in statement.targets if isinstance(target, ast.Name))
    else:
        inner = [one for one in ast.iter_child_nodes(statement) if not isinstance(one, ast.stmt)]
        names = (one for part in inner for one in ast.walk(part) if isinstance(one, ast.Name))
        yield from ((one.id, statement) for one in names if isinstance(one.ctx, ast.Store))


def _imported(scope: Scope, node: ast.ImportFrom, name: str, deep: int) -> tuple[Scope, ast.AST] | None:
    """Return the definition in the file from which a name is imported, or None if that cannot be read."""
    alias = next((one for one in node.names if (one.asname or one.name) == name), None)
    if node.level:
        folder = scope.path.parents[node.level - 1]
        module = node.module or "__init__"
        choices = (
            folder.joinpath(*module.split(".")).with_suffix(".py"),
            folder.joinpath(*module.split("."), "__init__.py"),
        )
        file = next((one for one in choices if one.is_file()), None)
    else:
        file = _module_file(node.module or "", scope.roots)
    there = _read(file, scope.roots) if deep < _DEEPEST else None
    return _definition(there, alias.name if alias else name, deep + 1) if there else None


def _of_class(
    scope: Scope, node: ast.ClassDef, kwargs: Mapping[str, object], inputs: Mapping[str, object] | None
) -> str | None:
    line = list(_bases(scope, node))
    if any(one.decorator_list or one.keywords or _method(one, "__new__") for one in line):
        return None
    if all(_is_rooted(scope, one) for one in line):
        return "is a class that is no torch.nn.Module; expected one, or a function that gives one"
    forward = next((found for one in line if (found := _method(one, "forward"))), None)
    if inputs is None:
        return f"brings no inputs; say them: model.inputs={{NAME: [1,3,224,224]}}{_taking(forward)}"
    made = next((found for one in line if (found := _method(one, "__init__"))), None)
    return (_wrong_arguments(made, kwargs, own=1) if made else None) or (
        _wrong_inputs(forward, inputs) if forward else None
    )


def _of_function(
    scope: Scope, node: ast.FunctionDef, kwargs: Mapping[str, object], inputs: Mapping[str, object] | None
) -> str | None:
    own = list(_own_nodes(node))
    named: dict[str, list[ast.AST]] = {}
    for name, value in (pair for one in own if isinstance(one, ast.stmt) for pair in _bound(one)):
        named.setdefault(name, []).append(value)
    returns = [one.value for one in own if isinstance(one, ast.Return) and one.value is not None]
    made = [values for one in returns for values in (named.get(one.id, [one]) if isinstance(one, ast.Name) else [one])]
    if (
        not returns
        and not node.decorator_list
        and not any(isinstance(one, (ast.Yield, ast.YieldFrom, ast.Raise)) for one in own)
    ):
        return "returns nothing; expected a torch.nn.Module, or one and its inputs"
    is_module = _is_class(scope, node.returns) or (
        made != [] and all(isinstance(one, ast.Call) and _is_class(scope, one.func) for one in made)
    )
    if inputs is None and is_module:
        return "gives a module and no inputs for it; say them: model.inputs={NAME: [1,3,224,224]}"
    return None if node.decorator_list else _wrong_arguments(node, kwargs, own=0)


def _bases(scope: Scope, node: ast.ClassDef, deep: int = 0) -> Iterator[ast.ClassDef]:
    """Yield the class and its base classes in order, as far as their files can be read."""
    yield node
    for base in node.bases:
        if isinstance(base, ast.Name) and deep < _DEEPEST:
            match _definition(scope, base.id, deep=1):
                case (other, ast.ClassDef() as parent):
                    yield from _bases(other, parent, deep + 1)


def _is_rooted(scope: Scope, node: ast.ClassDef) -> bool:
    """Return True if all bases of a class are defined in this file, or are object."""
    for base in node.bases:
        if not isinstance(base, ast.Name):
            return False
        found = _definition(scope, base.id, deep=1)
        if base.id != "object" and not (found and isinstance(found[1], ast.ClassDef)):
            return False
    return True


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of a function, without those of nested functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _own_nodes(child)


def _is_class(scope: Scope, node: ast.AST | None) -> bool:
    """Return True if an expression names a class (of a readable file, or of torch.nn as `nn`) whose instances are not tuples."""
    if isinstance(node, ast.Name):
        found = _definition(scope, node.id, deep=1)
        return found is not None and isinstance(found[1], ast.ClassDef) and not _method(found[1], "__new__")
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("nn", "torch.nn")


def _method(node: ast.ClassDef, name: str) -> Function | None:
    return next((one for one in node.body if isinstance(one, Function) and one.name == name), None)


def _taking(forward: Function | None) -> str:
    if forward is None:
        return ""
    return f", where forward takes ({ast.unparse(forward.args).removeprefix('self').removeprefix(', ')})"


def _signature(function: Function, own: int) -> tuple[list[str], set[str]]:
    """Return (the parameters' names, those without a default); for a method without self."""
    given = function.args
    by_place = [one.arg for one in [*given.posonlyargs, *given.args]]
    needed = set(by_place[own : len(by_place) - len(given.defaults)])
    needed |= {one.arg for one, default in zip(given.kwonlyargs, given.kw_defaults) if default is None}
    return [*by_place[own:], *(one.arg for one in given.kwonlyargs)], needed


def _wrong_arguments(function: Function, kwargs: Mapping[str, object], own: int) -> str | None:
    if function.decorator_list:
        return None
    names, needed = _signature(function, own)
    shown = f"it takes ({', '.join(names)})"
    if function.args.kwarg is None and (unknown := [name for name in kwargs if name not in names]):
        return f"takes no {', '.join(unknown)} of model.kwargs; {shown}"
    if lacking := [name for name in names if name in needed and name not in kwargs]:
        return f"needs {', '.join(lacking)}: model.kwargs={{{lacking[0]}: VALUE}}; {shown}"
    return None


def _wrong_inputs(forward: Function, inputs: Mapping[str, object]) -> str | None:
    if forward.decorator_list:
        return None
    names, needed = _signature(forward, own=1)
    known = [name for name in inputs if name in names]
    taking = _taking(forward).removeprefix(", where ")
    if known and len(known) < len(inputs) and forward.args.kwarg is None:
        return f"has no input {', '.join(name for name in inputs if name not in names)}: {taking}"
    if not known and len(inputs) > len(names) and forward.args.vararg is None and forward.args.kwarg is None:
        return f"has {len(inputs)} inputs in model.inputs, and {taking}"
    lacking = (
        [name for name in names if name in needed and name not in known] if known else names[len(inputs) : len(needed)]
    )
    return f"lacks inputs: {', '.join(lacking)}; {taking}" if lacking else None
