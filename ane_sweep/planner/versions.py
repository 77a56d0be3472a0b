"""The version of each stage: a digest of the code that affects its result, so that it cannot be forgotten.

That code consists of all recursive imports of the stage's module, and of the modules of the task's runtime, family,
rewrites and program kind, found by name. Declarations (STAGE, RUNTIME ...) do not count.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import ane_sweep
from ane_sweep.bridge import declared, families
from ane_sweep.bridge.programs import DEFAULT
from ane_sweep.bridge.programs import PACKAGE as PROGRAMS
from ane_sweep.bridge.runtimes import RUNTIMES
from ane_sweep.bridge.stages import ALL

PACKAGE = Path(ane_sweep.__file__).parent
# Words, names, and what carries a result or says why there is none: none of it decides one.
DECIDE_NOTHING = (
    "ane_sweep", "ane_sweep.errors", "ane_sweep.bridge.axes", "ane_sweep.bridge.cell", "ane_sweep.bridge.key",
    "ane_sweep.bridge", "ane_sweep.bridge.declared", "ane_sweep.bridge.disk", "ane_sweep.bridge.figures",
    "ane_sweep.bridge.metrics", "ane_sweep.bridge.plugins", "ane_sweep.bridge.programs", "ane_sweep.bridge.protocol",
    "ane_sweep.bridge.runtimes", "ane_sweep.bridge.stages", "ane_sweep.bridge.task", "ane_sweep.native_errors",
    "ane_sweep.placement", "ane_sweep.placement.types",
)  # fmt: skip
_OF_PROGRAMS = PACKAGE / "fix" / "rewrites"  # whose declarations decide what is applied
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(ane_sweep[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]*)|import[ \t]+(ane_sweep[\w.]*))",
    re.MULTILINE,
)


@cache
def code_digest(
    stage: str,
    family: str | None = None,
    runtime: str | None = None,
    program: str = DEFAULT,
    rewrites: tuple[str, ...] = (),
) -> str:
    """Return the sha256 of the code that affects a stage's result, with this family, runtime, program kind and rewrites
    (names of modules).
    """
    theirs = {
        path: f"{one.distribution} {one.version}/{name}"
        for one in (families.plugin_of(family) if family else None, RUNTIMES.plugin_of(runtime) if runtime else None)
        if one is not None
        for name, path in one.code().items()
    }
    sha256 = hashlib.sha256()
    named = {
        theirs.get(path) or path.relative_to(PACKAGE).as_posix(): path
        for path in code_files(stage, family, runtime, program, rewrites)
    }
    for name, path in sorted(named.items()):
        sha256.update(name.encode() + b"\0" + _content(path))
    return sha256.hexdigest()


def code_files(
    stage: str, family: str | None, runtime: str | None, program: str, rewrites: tuple[str, ...]
) -> set[Path]:
    """Return the files that count. A family's module counts if the stage builds models; for a plug-in, all of its code."""
    left_out = {_file(name) for name in DECIDE_NOTHING}
    started = [_file(f"ane_sweep.worker.stages.{stage}")]
    started += [_file(name) for name in rewrites]
    started += [_file(f"{PROGRAMS}.{program}.{part}") for part in ALL[stage].parts]
    if runtime:
        plugin = RUNTIMES.plugin_of(runtime)
        started += plugin.code().values() if plugin else [_file(RUNTIMES.module_of(runtime))]
    found = _closure(started, left_out)
    if family and _file("ane_sweep.worker.models") in found:
        plugin = families.plugin_of(family)
        own = plugin.code().values() if plugin else [_file(f"ane_sweep.worker.models.{family}")]
        found |= _closure(own, left_out)
    return found | {path for pattern in ALL[stage].reads for path in PACKAGE.glob(pattern) if path.is_file()}


def _closure(files: Iterable[Path | None], left_out: set[Path | None]) -> set[Path]:
    found: set[Path] = set()
    new = list(files)
    while new:
        if (path := new.pop()) is not None and path not in found and path not in left_out:
            found.add(path)
            new += imported(path)
    return found


@cache
def imported(path: Path) -> frozenset[Path]:
    """Return the files of ours that a file imports anywhere."""
    names = set()
    for module, members, plain in _IMPORT.findall(path.read_text(encoding="utf-8", errors="replace")):
        base = module or plain
        names |= {base, *(f"{base}.{name}" for name in re.findall(r"\w+", re.sub("#.*", "", members)))}
    return frozenset(file for name in names if (file := _file(name)))


@cache
def _file(module: str) -> Path | None:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@cache
def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".py" and path.is_relative_to(PACKAGE) and not path.is_relative_to(_OF_PROGRAMS):
        return declared.without(content.decode(), "STAGE", "RUNTIME", "SERVES", "PROGRAM", "REWRITE").encode()
    return content
