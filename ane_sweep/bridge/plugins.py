"""Plug-ins: additions by other installed packages, found by entry point without importing any of them.

    [project.entry-points."ane_sweep.families"]
    perceptron = "their_package.perceptron"

An entry's value names a module; the files that it adds lie next to that module (or inside, if it is a package).

    families    the module itself, as worker/models/NAME.py; its sizes are model/*.yaml
    runtimes    the module itself, as worker/runtimes/NAME.py; it runs only if it is requested by name, never as `auto`
    precisions  precision/NAME.yaml
    log_lines   NAME.csv, rows of the form of machine/log_lines.csv, tried after those
"""

import importlib.util
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module, metadata
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from ane_sweep.errors import ConfigError, StageError

KINDS = {"families": "model family", "runtimes": "runtime", "precisions": "precision", "log_lines": "log lines"}
OPTIONS = {"families": "model", "precisions": "precision"}  # the folders of options that they bring
FILES = {"precisions": "precision/{}.yaml", "log_lines": "{}.csv"}  # what must lie beside the module
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,60}")


@dataclass(frozen=True)
class Plugin:
    """One entry point of a plug-in. `source` is the module's file, `folder` holds it; `trouble` says why the entry cannot be used."""

    kind: str
    name: str
    module: str
    distribution: str
    version: str
    source: Path | None = None
    folder: Path | None = None
    trouble: str | None = None

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} ({self.module})"

    @property
    def file(self) -> Path:
        """Return the plug-in's file, for kinds that consist of one file."""
        assert self.folder is not None  # else there is `trouble`, and nobody asks
        return self.folder / FILES[self.kind].format(self.name)

    def code(self) -> dict[str, Path]:
        """Return all Python files of the plug-in's package by name, as any of them may affect its results."""
        assert self.source is not None
        parts = self.module.split(".")
        depth = len(parts) if self.source.name == "__init__.py" else len(parts) - 1
        if not depth:
            return {self.source.name: self.source}
        root = self.source.parents[depth]
        return {path.relative_to(root).as_posix(): path for path in sorted((root / parts[0]).rglob("*.py"))}


def only(kind: str, name: str, ours: Collection[str]) -> Plugin | None:
    """Return the plug-in of a name, or None for a name of ours or an unknown one. Raises ConfigError if it is broken or declared twice."""
    if name in ours or name not in find_plugins(kind):
        return None
    if said := problem(kind, name, ours):
        raise ConfigError(said)
    return find_plugins(kind)[name][0]


def problem(kind: str, name: str, ours: Collection[str]) -> str | None:
    """Return why a declared name cannot be used, or None if it can."""
    declared = find_plugins(kind).get(name, [])
    owners = [*(["ane-sweep"] if name in ours and declared else []), *map(str, declared)]
    if len(owners) > 1:
        return (
            f"{KINDS[kind]} {name!r} is claimed by {' and by '.join(owners)}: uninstall all but one, or rename it there"
        )
    return declared[0].trouble if declared else None


def usable(kind: str, ours: Collection[str] = ()) -> dict[str, Plugin]:
    """Return {name: plug-in} of a kind, without broken ones and names that are taken."""
    return {name: one for name, (one, *_) in find_plugins(kind).items() if problem(kind, name, ours) is None}


def broken(*kinds: str) -> list[str]:
    """Return a sentence for each entry point of these kinds that cannot be used."""
    return [one.trouble for kind in kinds for claims in find_plugins(kind).values() for one in claims if one.trouble]


def folders() -> dict[Path, str]:
    """Return {folder of options (model/, precision/): name of the package that owns it}."""
    entries = [one for kind in OPTIONS for claims in find_plugins(kind).values() for one in claims]
    return {one.folder: f"{one.distribution} {one.version}" for one in entries if one.folder is not None}


def import_plugin(plugin: Plugin) -> ModuleType:
    """Import a plug-in's module, in the worker alone. Raises StageError that names the package if the import fails."""
    try:
        return import_module(plugin.module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise StageError(f"{KINDS[plugin.kind]} {plugin.name!r} of {plugin} cannot be imported: {why}") from error


def versions(used: Iterable[Plugin | None]) -> dict[str, str | None]:
    """Return {distribution: version} of the plug-ins used, for a record's toolchain."""
    return {one.distribution: one.version for one in used if one is not None}


@cache
def find_plugins(kind: str) -> dict[str, list[Plugin]]:
    """Return {name: all plug-ins that declare it}."""
    claims: dict[str, list[Plugin]] = {}
    for entry in metadata.entry_points(group=f"ane_sweep.{kind}"):
        plugin = _described(kind, entry)
        claims.setdefault(plugin.name, []).append(plugin)
    return dict(sorted(claims.items()))


def _described(kind: str, entry: metadata.EntryPoint) -> Plugin:
    named = (entry.dist and entry.dist.metadata["Name"]) or "a package without a name"
    version = (entry.dist and entry.dist.version) or "of no version"
    plain = Plugin(kind, entry.name, entry.value, named, version)

    def cannot(why: str) -> Plugin:
        return replace(plain, trouble=f"{KINDS[kind]} {entry.name!r} of {plain} cannot be used: {why}")

    if not _NAME.fullmatch(entry.name):
        return cannot("its name may hold letters, digits, _, . and -")
    if not re.fullmatch(r"\w+(\.\w+)*", entry.value):
        return cannot("its value is the name of a module, without a colon")
    spec = find_spec(entry.value)
    if spec is None:
        return cannot(f"there is no module {entry.value}; install that package again")
    inside = list(spec.submodule_search_locations or ())
    source = Path(spec.origin) if spec.origin and Path(spec.origin).suffix == ".py" else None
    folder = Path(inside[0]) if inside else source.parent if source else None
    if folder is None or (source is None and kind not in FILES):
        return cannot("its module has no Python source")
    if kind in FILES and not (folder / FILES[kind].format(entry.name)).is_file():
        return cannot(f"there is no {folder / FILES[kind].format(entry.name)}")
    return replace(plain, source=source, folder=folder)


def find_spec(module: str, roots: Sequence[str] = ()) -> ModuleSpec | None:
    """Return a module's spec, or None: from one of the folders `roots`, else from where Python looks.

    importlib's own find_spec imports the packages around the module; this function does not.
    """
    name, *rest = module.split(".")
    try:
        spec = (PathFinder.find_spec(name, roots) if roots else None) or importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec
