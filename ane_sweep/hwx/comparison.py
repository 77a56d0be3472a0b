"""Compare compiled programs with each other, and predictions for a model with the program made from it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict, TypeVar

from ane_sweep.hwx.program import CompiledProgram
from ane_sweep.hwx.tasks import TaskDescriptor

_COMPARED = ("engine", "operation", "constant_bytes", "estimate_us")  # attributes of a task, and its geometry
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class ProgramSummary:
    """The figures of a program that `compare_programs` compares."""

    path: str
    target: str
    compiler: str
    bytes: int
    tasks: int | None
    ne_tasks: int
    pe_tasks: int
    read_bytes: int
    written_bytes: int
    constant_bytes: int
    padding_bytes: int
    estimate_us: int


def summarise_program(program: CompiledProgram) -> ProgramSummary:
    engines = Counter(task.engine for task in program.tasks)
    moved = Counter[str]()
    for transfer in (transfer for task in program.tasks for transfer in task.transfers):
        moved[transfer.does] += transfer.bytes or 0
    return ProgramSummary(
        str(program.path), program.generation.name, program.compiler.version or "?", program.bytes,
        program.declared_tasks if program.undecoded else len(program.tasks), engines["NE"], engines["PE"],
        moved["reads"], moved["writes"], sum(task.constant_bytes for task in program.tasks),
        sum(tensor.bytes - tensor.used_bytes for tensor in program.tensors), sum(task.estimate_us for task in program.tasks),
    )  # fmt: skip


class Differences(TypedDict):
    """The differences of one program from the first: flags as name -> [here, there]; each differing task with its changes."""

    path: str
    flags: dict[str, list[str | None]]
    tasks: list[dict[str, object]]
    registers: int


def compare_programs(first: CompiledProgram, other: CompiledProgram) -> Differences:
    """Return the differing compiler flags (name -> [here, there]), the differing tasks with their changes, and a count of registers."""
    flags = _find_differences(first.compiler.flags, other.compiler.flags)
    pairs = list(zip(first.tasks, other.tasks))
    return {
        "path": str(other.path),
        "flags": {name: flags[name] for name in sorted(flags) if name not in ("-i", "-o")},
        "tasks": [{"task": one.index, **changed} for one, two in pairs if (changed := _find_changes(one, two))],
        "registers": sum(len(_find_differences(one.registers, two.registers)) for one, two in pairs),
    }


def _find_changes(first: TaskDescriptor, other: TaskDescriptor) -> dict[str, object]:
    here, there = ({name: getattr(task, name) for name in _COMPARED} for task in (first, other))
    geometry = _find_differences(first.geometry, other.geometry)
    return {**_find_differences(here, there), **{name: geometry[name] for name in sorted(geometry)}}


def _find_differences(here: Mapping[K, V], there: Mapping[K, V]) -> dict[K, list[V | None]]:
    keys = dict.fromkeys([*here, *there])
    return {key: [here.get(key), there.get(key)] for key in keys if here.get(key) != there.get(key)}


def count_ops_per_task(ane_ops: int, programs: Sequence[CompiledProgram]) -> dict[str, object]:
    """Compare the ops that were predicted or planned for the Neural Engine with the compiled tasks of the programs."""
    declared = [(program.declared_tasks, len(program.tasks)) for program in programs]
    tasks = sum(found if count is None else count for count, found in declared)
    return {"ane_ops": ane_ops, "tasks": tasks, "ops_per_task": round(ane_ops / tasks, 3) if tasks else None}
