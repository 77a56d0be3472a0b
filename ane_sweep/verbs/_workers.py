"""Shared parts of `chunk` and `compress`: they run stages of a sweep on one package, each in a fresh process with its
limits, and put the complete result in place or nothing.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ane_sweep import installed
from ane_sweep.bridge import disk
from ane_sweep.bridge.stages import ALL
from ane_sweep.bridge.task import Limits, TaskRequest, TaskResult
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.folders import user_path
from ane_sweep.machine import memory
from ane_sweep.mil import chunker, compiled
from ane_sweep.planner import packages
from ane_sweep.runner import isolate
from ane_sweep.terminal import NOT_ALL_OK, format_path, print_result, say
from ane_sweep.words import Parser

SMALL_BYTES = 60_000_000  # a package up to this is also run, and what was made of it compared
INPUTS = 2  # on so many
Result = tuple[list[str], dict[str, object]]  # lines of text, and the object of --json


def add_shared_options(parser: Parser, what: str) -> None:
    parser.add("-o, --output PATH", what)
    parser.add("--force", "replace what an earlier call left there (default: refuse)")


def parse_target(given: argparse.Namespace, verb: str, is_package: bool, problem: str) -> Path:
    """Return the absolute path of -o. Raises ConfigError if it is missing, or has the name of the other form of result."""
    if given.output is None:
        raise ConfigError(f"{verb}: -o PATH is missing: where to write; `ane-sweep {verb} --help`")
    target = user_path(given.output).absolute()
    if (target.suffix == ".mlpackage") is not is_package:
        raise ConfigError(f"-o {given.output}: {problem}")
    return target


@dataclass
class Bench:
    """A temporary workplace for stages: a folder next to the target, deleted at the end."""

    package: Path
    known: dict[str, object]
    folder: Path

    def stage(self, name: str, params: Mapping[str, object], inputs: dict[str, Path]) -> tuple[TaskResult, Path]:
        """Run a stage and return (its result, the folder of its files). Raises StageError with its reason."""
        place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        (place / "out").mkdir()
        limits = Limits(memory.memory_budget(None))
        task = TaskRequest(name, name, dict(params), inputs, place / "out", place / "tmp", limits)
        result = isolate.run_task(task, place, timeout_s=ALL[name].timeout_s, watch_memory=True)
        if result.status != "ok":
            raise StageError(f"{self.package}: {name}: {result.reason}")
        return result, place / "out"

    @property
    def program(self) -> Path:
        """Return the package as an artifact: model.mlpackage in a folder."""
        folder = self.folder / "program"
        if not folder.exists():
            folder.mkdir()
            (folder / "model.mlpackage").symlink_to(self.package)
        return folder

    @property
    def model(self) -> dict[str, object]:
        return {"family": "package", "task": "tensors", "arch": {**self.known, "inputs": None, "packages": {}}}

    @property
    def is_small(self) -> bool:
        return size_of(self.package) <= SMALL_BYTES

    def reference(self) -> Path:
        """Return the folder of the model's fp32 outputs on seeded inputs."""
        weights = {"kind": packages.KIND, "digest": "", "allow_pickle": False}
        params = {"model": self.model, "weights": weights, "seq_len": 0, "texts": {"count": INPUTS, "seed": 0}}
        return self.stage("reference", params, {"package": self.package})[1]

    def score(self, program: Path, reference: Path) -> tuple[TaskResult, Path]:
        params = {"runtime": "reference", "compute_units": None, "numerics": None, "effects": None, "model": self.model}
        return self.stage("score", params, {"program": program, "reference": reference})


@contextmanager
def open_bench(text: str, target: Path) -> Iterator[Bench]:
    """Yield a temporary workplace for a package, or for the only ML Program of a pipeline. Raises ConfigError for a
    model that is not an ML Program, and for a target whose folder is not writable.
    """
    installed.need_worker("it")
    package = user_path(text).absolute()
    if compiled.is_compiled(package):
        raise ConfigError(
            f"{text}: a compiled model can be neither compressed nor cut; give the .mlpackage that it was compiled from"
        )
    known = packages.described(package, text)[1]
    refuse_place(package, target)
    try:
        folder = Path(tempfile.mkdtemp(prefix=".ane-sweep-", dir=target.parent))
    except OSError as error:
        raise ConfigError(f"-o {format_path(target)}: cannot be written ({error.strerror})") from error
    try:
        if known.get("form") == packages.PIPELINE:
            package = chunker.extract_program(package, folder / package.name)
            known = packages.described(package, text)[1]
        yield Bench(package, known, folder)
    finally:
        disk.remove_tree(folder)


def refuse_existing(target: Path, force: bool) -> None:
    """Raise ConfigError if the target exists; with `force`, only if no such call has written it."""
    if os.path.lexists(target):
        place = f"-o {format_path(target)}"
        if not target.is_dir() or target.is_symlink() or not _made_here(target):
            raise ConfigError(f"{place}: is there, and is nothing that this verb makes; give another place")
        if not force and any(target.iterdir()):
            raise ConfigError(f"{place}: is there already; give another place, or --force")


def refuse_place(package: Path, target: Path) -> None:
    """Raise ConfigError if the package and the target overlap, or if the target's folder is not writable."""
    ends = {package.resolve(), target.resolve()}
    if len(ends) == 1 or ends & {*package.resolve().parents, *target.resolve().parents}:
        raise ConfigError(
            f"-o {format_path(target)}: that is the package itself, or one holds the other; give another place"
        )
    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK | os.X_OK):
        raise ConfigError(
            f"-o {format_path(target)}: {target.parent} is no folder that can be written to; make it first"
        )


def write_result(given: argparse.Namespace, target: Path, work: "Callable[[Bench], Result]") -> int:
    """Run `work` on the package, print its result and return the exit code. If a worker fails, no file is written.

    Raises ConfigError if the target exists; with --force, only if no such call has written it.
    """
    refuse_existing(target, given.force)
    with open_bench(given.model, target) as bench:
        try:
            lines, content = work(bench)
        except StageError as error:
            say(f"error: {error}", "nothing was written")
            return NOT_ALL_OK
    return print_result(given.json, "\n".join(lines), **content)


def _made_here(target: Path) -> bool:
    """Return True for a package, or for a folder that contains only chunks."""
    if target.suffix == ".mlpackage":
        return (target / "Manifest.json").is_file()
    chunks = {path.name for path in target.glob("chunk_*.mlpackage")}
    return {path.name for path in target.iterdir()} <= {*chunks, "model.mlpackage"}


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
