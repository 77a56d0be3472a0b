"""Compare compiled programs with each other, and predictions for a model with the program made from it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from ane_sweep.hwx.program import CompiledProgram
from ane_sweep.hwx.tasks import TaskDescriptor

_COMPARED = (
    "engine",
    "operation",
    "geometry",
    "constant_bytes",
    "estimate_us",
)  # attributes of a task that are compared


@dataclass(frozen=True)
class ProgramSummary:
    """The figures of a program that are compared."""

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
    for task in program.tasks:
        for transfer in task.transfers:
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
    here, there = first.compiler.flags, other.compiler.flags
    flags = {
        name: [here.get(name), there.get(name)]
        for name in sorted(here.keys() | there.keys())
        if here.get(name) != there.get(name) and name not in ("-i", "-o")
    }
    pairs = zip(first.tasks, other.tasks)
    tasks = [{"task": one.index, **changed} for one, two in pairs if (changed := _find_changes(one, two))]
    registers = sum(len(_changed_registers(one, two)) for one, two in zip(first.tasks, other.tasks))
    return {"path": str(other.path), "flags": flags, "tasks": tasks, "registers": registers}


def _find_changes(first: TaskDescriptor, other: TaskDescriptor) -> dict[str, object]:
    changes: dict[str, object] = {
        name: [getattr(first, name), getattr(other, name)]
        for name in _COMPARED
        if getattr(first, name) != getattr(other, name) and name != "geometry"
    }
    for name in sorted(first.geometry.keys() | other.geometry.keys()):
        if (pair := [first.geometry.get(name), other.geometry.get(name)])[0] != pair[1]:
            changes[name] = pair
    return changes


def _changed_registers(first: TaskDescriptor, other: TaskDescriptor) -> set[int]:
    both = first.registers.keys() | other.registers.keys()
    return {address for address in both if first.registers.get(address) != other.registers.get(address)}


def count_ops_per_task(ane_ops: int, programs: Sequence[CompiledProgram]) -> dict[str, object]:
    """Compare the ops that were predicted or planned for the Neural Engine with the tasks that they became."""
    tasks = sum(
        len(program.tasks) if program.declared_tasks is None else program.declared_tasks for program in programs
    )
    return {"ane_ops": ane_ops, "tasks": tasks, "ops_per_task": round(ane_ops / tasks, 3) if tasks else None}
