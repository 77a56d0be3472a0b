"""Source files of a user's module, found by reading import statements: no code is imported.

The search follows every import statement, recursively. The standard library and installed packages are not followed;
installed packages count by version. Files that are imported in another way (importlib, exec) are missed here: the
worker checks its actual imports (worker/models/_own.py).
"""

import ast
import hashlib
import importlib.metadata
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

from ane_sweep import installed
from ane_sweep.bridge.plugins import find_spec
from ane_sweep.errors import ConfigError
from ane_sweep.mil import untrusted

MOST_FILES, MOST_BYTES = 5000, 10_000_000
_distributions = cache(importlib.metadata.packages_distributions)


@dataclass
class Sources:
    """A module with its imports: `files` name -> sha256, `packages` name -> version of installed ones.

    unread   files still to read: name, path, and the package for relative imports
    """

    roots: Sequence[Path]
    files: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    unread: list[tuple[str, Path, str]] = field(default_factory=list)


def of_file(path: Path, roots: Sequence[Path]) -> Sources:
    """Return a file with all its imports. Raises ConfigError for more files than any model has, OSError."""
    found = Sources(roots, unread=[(path.name, path, "")])
    _read_all(found)
    return found


def of_module(name: str, roots: Sequence[Path]) -> Sources:
    """Return a module, given by its dotted name, with all its imports. Raises ConfigError for an unknown one."""
    found = Sources(roots)
    if not _enter(found, name):
        looked = ", ".join(str(root) for root in roots)
        raise ConfigError(f"model.path={name}: no such module; looked in {looked} and among what is installed")
    _read_all(found)
    return found


def _enter(found: Sources, name: str) -> bool:
    """Add the files of a module and its parent packages by its full name; return False for an unknown one."""
    top, *rest = name.split(".")
    if top in sys.stdlib_module_names or top in ("ane_sweep", "__future__"):
        return True
    spec = find_spec(top, [str(root) for root in found.roots])
    if spec is None:
        return False
    origin, places = spec.origin, list(spec.submodule_search_locations or ())
    if any(installed.is_installed(Path(place)) for place in [*places, *([origin] if origin else [])]):
        found.packages[top] = _version(top)
        return not rest or bool(places)
    at = top
    for part in [*rest, None]:
        if origin and Path(origin).suffix == ".py":
            found.unread.append((at, Path(origin), at if places else at.rpartition(".")[0]))
        if part is None:
            return True
        at = f"{at}.{part}"
        spec = PathFinder.find_spec(at, places) if places else None
        if spec is None:
            return False
        origin, places = spec.origin, list(spec.submodule_search_locations or ())
    return True


def _read_all(found: Sources) -> None:
    """Read the noted files and the files that they import, iteratively, however long the chain."""
    while found.unread:
        name, path, package = found.unread.pop()
        if name not in found.files:
            _read(found, name, path, package)


def _read(found: Sources, name: str, path: Path, package: str) -> None:
    """Read a file of the user and note its imports."""
    if len(found.files) >= MOST_FILES:
        raise ConfigError(f"model.path: it imports more than {MOST_FILES:,} files, by way of {path}")
    try:
        content = untrusted.read_file(path, MOST_BYTES)
    except ValueError as error:
        raise ConfigError(f"model.path: {path} is no source file to read: {error}") from None
    found.files[name] = hashlib.sha256(content).hexdigest()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # the worker says it, as a record's reason
    for module, names in _imports(tree, package):
        if _enter(found, module):
            for one in names:
                if module.split(".")[0] not in found.packages:
                    _enter(found, f"{module}.{one}")


def _imports(tree: ast.AST, package: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (module, names imported from it) of every import statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if package else []
            base = parts[: len(parts) - node.level + 1] if node.level else []
            if module := ".".join([*base, *([node.module] if node.module else [])]):
                yield module, [alias.name for alias in node.names if alias.name != "*"]


def _version(top: str) -> str:
    for name in (top, *_distributions().get(top, ())):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"
