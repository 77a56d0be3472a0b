"""What other installed packages add, by entry point; found without importing any of it.

    [project.entry-points."ane_sweep.families"]
    perceptron = "their_package.perceptron"

An entry's value names a module; what it brings lies beside that module (or in it, where it is a package).

    families    the module itself, as worker/models/NAME.py; its sizes are model/*.yaml
    runtimes    the module itself, as worker/runtimes/NAME.py; it runs where it is asked for by name, never as `auto`
    precisions  precision/NAME.yaml
    log_lines   NAME.csv, rows of the form of machine/log_lines.csv, tried after those
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from ane_sweep.errors import ConfigError, StageError

KINDS = {"families": "model family", "runtimes": "runtime", "precisions": "precision", "log_lines": "log lines"}
OPTIONS = {"families": "model", "precisions": "precision"}  # the folders of options that they bring
FILES = {"precisions": "precision/{}.yaml", "log_lines": "{}.csv"}  # what must lie beside the module
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,60}")


@dataclass(frozen=True)
class Plugin:
    """One entry. `source` is the module's file, `folder` where it lies; `trouble` says why it cannot be used."""

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
        """What lies beside its module, of the kinds that are a file."""
        assert self.folder is not None  # else there is `trouble`, and nobody asks
        return self.folder / FILES[self.kind].format(self.name)

    def code(self) -> dict[str, Path]:
        """All Python files of the package that it lies in, by name: any of them may decide what it computes."""
        assert self.source is not None
        parts = self.module.split(".")
        depth = len(parts) if self.source.name == "__init__.py" else len(parts) - 1
        if not depth:
            return {self.source.name: self.source}
        root = self.source.parents[depth]
        return {path.relative_to(root).as_posix(): path for path in sorted((root / parts[0]).rglob("*.py"))}


def only(kind: str, name: str, ours: Collection[str]) -> Plugin | None:
    """The plug-in of a name; None for one of ours, or of nobody's. Raises ConfigError where it is broken, or claimed twice."""
    if name in ours or name not in found(kind):
        return None
    if said := problem(kind, name, ours):
        raise ConfigError(said)
    return found(kind)[name][0]


def problem(kind: str, name: str, ours: Collection[str]) -> str | None:
    """Why a name that is declared cannot be asked for."""
    declared = found(kind).get(name, [])
    owners = [*(["ane-sweep"] if name in ours and declared else []), *map(str, declared)]
    if len(owners) > 1:
        return (
            f"{KINDS[kind]} {name!r} is claimed by {' and by '.join(owners)}: uninstall all but one, or rename it there"
        )
    return declared[0].trouble if declared else None


def usable(kind: str, ours: Collection[str] = ()) -> dict[str, Plugin]:
    """Name -> plug-in, without what is broken or taken."""
    return {name: one for name, (one, *_) in found(kind).items() if problem(kind, name, ours) is None}


def broken(*kinds: str) -> list[str]:
    """A sentence for each entry that cannot be used, whoever else claims its name."""
    return [one.trouble for kind in kinds for claims in found(kind).values() for one in claims if one.trouble]


def folders() -> dict[Path, str]:
    """Folders that hold options (model/, precision/) -> whose they are."""
    entries = [one for kind in OPTIONS for claims in found(kind).values() for one in claims]
    return {one.folder: f"{one.distribution} {one.version}" for one in entries if one.folder is not None}


def imported(plugin: Plugin) -> ModuleType:
    """Its module: for the worker alone. Raises StageError that names the package where its import fails."""
    try:
        return import_module(plugin.module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise StageError(f"{KINDS[plugin.kind]} {plugin.name!r} of {plugin} cannot be imported: {why}") from error


def versions(used: Iterable[Plugin | None]) -> dict[str, str | None]:
    """Distribution -> version, for a record's toolchain."""
    return {one.distribution: one.version for one in used if one is not None}


@cache
def found(kind: str) -> dict[str, list[Plugin]]:
    """Name -> all who declare it."""
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
        told = f"{KINDS[kind]} {entry.name!r} of {plain} cannot be used: {why}"
        return Plugin(kind, entry.name, entry.value, named, version, trouble=told)

    if not _NAME.fullmatch(entry.name):
        return cannot("its name may hold letters, digits, _, . and -")
    if not re.fullmatch(r"\w+(\.\w+)*", entry.value):
        return cannot("its value is the name of a module, without a colon")
    spec = _spec(entry.value)
    if spec is None:
        return cannot(f"there is no module {entry.value}; install that package again")
    inside = list(spec.submodule_search_locations or ())
    source = Path(spec.origin) if spec.origin and Path(spec.origin).suffix == ".py" else None
    folder = Path(inside[0]) if inside else source.parent if source else None
    if folder is None or (source is None and kind not in FILES):
        return cannot("its module has no Python source")
    if kind in FILES and not (folder / FILES[kind].format(entry.name)).is_file():
        return cannot(f"there is no {folder / FILES[kind].format(entry.name)}")
    return Plugin(kind, entry.name, entry.value, named, version, source, folder)


def _spec(module: str) -> ModuleSpec | None:
    """Where a module lies. importlib's own find_spec imports the packages around it; this does not."""
    first, *rest = module.split(".")
    try:
        spec = find_spec(first)
    except (ImportError, ValueError):
        return None
    name = first
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec
