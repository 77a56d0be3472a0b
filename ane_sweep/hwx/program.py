"""Read a .hwx file as a whole: its container, compiler, tensors, constants and tasks."""

import re
import struct
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from ane_sweep.errors import PackageError
from ane_sweep.hwx import container, facts, stream, tensors
from ane_sweep.hwx.container import TENSOR_THREAD, Container, FileSection
from ane_sweep.hwx.facts import Generation
from ane_sweep.hwx.tasks import TaskDescriptor, read_task
from ane_sweep.hwx.tensors import TensorBinding

_BARS = 128  # base address numbers of a program at most
_GLOBAL = 0x0F  # kind of a symbol that is defined in a section, and seen from outside
_VERSION = re.compile(r"(\w*compiler) v([\d.]+)")
_MODULE = re.compile(r"Module (\w+):")
_FIELD = re.compile(r"(Module\w+|CompilationMethod):\s*(.*)")


@dataclass(frozen=True)
class Compiler:
    """The compiler's notes in a program: its version, the modules that made the program, and its flags."""

    name: str | None
    version: str | None
    target: str | None  # as its -t flag names it: h13, h14g
    modules: list[dict[str, str]]
    flags: dict[str, str]


@dataclass(frozen=True)
class Constants:
    """A section of constants: its bytes, the number of nonzero bytes, and the kernels that symbols name in it."""

    section: str
    bytes: int
    nonzero_bytes: int
    kernels: int
    parts: int  # of all kernels: each is cut for the cores that use it


@dataclass(frozen=True)
class CompiledProgram:
    """A compiled program of the Neural Engine.

    `declared_tasks` is the container's own count; `undecoded` is the reason why there are no tasks, None if they were decoded.
    """

    path: Path
    bytes: int
    generation: Generation
    compiler: Compiler
    tensors: list[TensorBinding]
    constants: list[Constants]
    scratch_bytes: int
    tasks: list[TaskDescriptor]
    declared_tasks: int | None
    undecoded: str | None
    sections: list[FileSection]
    relocations: int
    unknown_commands: dict[int, int]

    @property
    def agrees(self) -> bool | None:
        """Return True if the number of tasks found equals the container's count; None if either is unknown."""
        return None if self.undecoded or self.declared_tasks is None else len(self.tasks) == self.declared_tasks

    def to_dict(self) -> dict[str, object]:
        """Return the program as `--json` prints it."""
        return {
            "path": str(self.path),
            "bytes": self.bytes,
            "target": {**asdict(self.generation), "flag": self.compiler.target},
            "compiler": asdict(self.compiler),
            "tensors": [{**asdict(tensor), "wasted": round(tensor.wasted, 4)} for tensor in self.tensors],
            "constants": [asdict(item) for item in self.constants],
            "scratch_bytes": self.scratch_bytes,
            "told_tasks": self.declared_tasks,
            "agrees": self.agrees,
            "undecoded": self.undecoded,
            "engines": dict(Counter(task.engine for task in self.tasks)),
            "tasks": [
                {**asdict(task), "registers": {f"{at:#07x}": word for at, word in task.registers.items()}}
                for task in self.tasks
            ],
            "sections": [
                {"section": f"{item.segment},{item.name}", "address": item.address, "bytes": item.size}
                for item in self.sections
            ],
            "relocations": self.relocations,
            "unknown_commands": {f"{command:#x}": count for command, count in self.unknown_commands.items()},
        }


def read(path: Path) -> CompiledProgram:
    """Read the program at `path`. Raises PackageError if it cannot be read, or its tasks do not fit its generation."""
    held = container.read(path)
    generation = facts.generation(held.subtype)
    declared = _read_descriptor(held)
    text = held.section("__TEXT", "__text")
    undecoded: str | None = None
    tasks: list[TaskDescriptor] = []
    if text is None:
        undecoded = "it holds no __TEXT,__text section"
    elif not generation.layout:
        undecoded = f"no source has published how {generation.name} writes its tasks"
    else:
        named = {item.address: f"{item.segment},{item.name}" for item in held.sections if item.address}
        named |= {address: name for name, address in held.named.items()}
        places = {bar: named[address] for bar, address in _read_bars(held).items() if address in named}
        try:
            found = stream.read(text.data, generation, declared.get("first_words"), declared.get("count"))
        except PackageError as error:
            raise PackageError(f"{path}: {error}") from None
        tasks = [read_task(index, one, generation.layout, places) for index, one in enumerate(found)]
    return CompiledProgram(
        path, held.size, generation, _read_banner(held.banner), tensors.read(held), _read_constants(held),
        sum(item.size for item in held.sections if item.segment == "__DATA"), tasks, declared.get("count"), undecoded,
        held.sections, sum(item.relocations for item in held.sections), held.unknown,
    )  # fmt: skip


def _read_descriptor(held: Container) -> dict[str, int]:
    """Return the counts in the program's thread (the number of tasks, and words of the first one), or {} if its flavour is unknown."""
    for thread in held.threads:
        if thread.flavour == TENSOR_THREAD or not (where := facts.descriptor(thread.flavour)):
            continue
        counts: dict[str, int] = {}
        for name in ("count", "first_words"):
            if name in where and where[name] + 4 <= len(thread.data):
                counts[name] = struct.unpack_from("<I", thread.data, where[name])[0]
        if "first_words" in counts:
            counts["first_words"] += 1  # the file holds one less
        return counts
    return {}


def _read_bars(held: Container) -> dict[int, int]:
    """Return {number of a base address: address} from the program's thread."""
    for thread in held.threads:
        if where := facts.descriptor(thread.flavour):
            step = where["bar_step"]
            places = {bar: where["bars"] + step * bar for bar in range(0, _BARS, 1 if step == 8 else 4)}
            return {
                bar: struct.unpack_from("<Q", thread.data, at)[0]
                for bar, at in places.items()
                if at + 8 <= min(len(thread.data), where["count"])
            }
    return {}


def _read_constants(held: Container) -> list[Constants]:
    found = []
    for section in held.sections:
        if section.segment.startswith("__KERN") or (section.segment, section.name) == ("__TEXT", "__const"):
            addresses = range(section.address, section.address + section.size)
            exported = [item for item in held.symbols if item.kind == _GLOBAL and item.name.startswith("K")]
            inside = [item for item in exported if item.address in addresses]
            kernels = {item.name.rpartition("_ne_")[0] or item.name for item in inside}
            nonzero = section.size - bytes(section.data).count(0) if section.data else 0
            name = f"{section.segment},{section.name}"
            found.append(Constants(name, section.size, nonzero, len(kernels), len(inside)))
    return found


def _read_banner(banner: str) -> Compiler:
    """Parse the compiler's banner; missing parts are None or empty."""
    name, version = found.groups() if (found := _VERSION.search(banner)) else (None, None)
    modules: list[dict[str, str]] = []
    flags: dict[str, str] = {}
    for line in (line.strip() for line in banner.splitlines()):
        if line.startswith("-"):
            # `--name=value`, `-t h13`, or a bare flag, whose value is empty
            flag, _, value = line.partition("=" if line.startswith("--") and "=" in line else " ")
            flags[flag.strip()] = value.strip()
        elif module := _MODULE.match(line):
            modules.append({"module": module[1]})
        elif modules and (field := _FIELD.match(line)):
            modules[-1][field[1]] = field[2].strip()
    return Compiler(name, version, flags.get("-t"), modules, flags)
