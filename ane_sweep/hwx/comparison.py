"""Programs side by side, and what was predicted of a model beside the program that was made of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ane_sweep.hwx.program import CompiledProgram
from ane_sweep.hwx.tasks import TaskDescriptor

_COMPARED = ("engine", "operation", "geometry", "constant_bytes", "estimate_us")  # of a task, in which two may differ


@dataclass(frozen=True)
class ProgramSummary:
    """Of a program, what is compared."""

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
        program.told_tasks if program.undecoded else len(program.tasks), engines["NE"], engines["PE"],
        moved["reads"], moved["writes"], sum(task.constant_bytes for task in program.tasks),
        sum(tensor.bytes - tensor.used_bytes for tensor in program.tensors), sum(task.estimate_us for task in program.tasks),
    )  # fmt: skip


def compare_programs(first: CompiledProgram, other: CompiledProgram) -> dict[str, Any]:
    """flags: name -> (here, there); tasks: of each that differs, what of it."""
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


def _find_changes(one: TaskDescriptor, two: TaskDescriptor) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: [getattr(one, name), getattr(two, name)]
        for name in _COMPARED
        if getattr(one, name) != getattr(two, name) and name != "geometry"
    }
    for name in sorted(one.geometry.keys() | two.geometry.keys()):
        if (pair := [one.geometry.get(name), two.geometry.get(name)])[0] != pair[1]:
            found[name] = pair
    return found


def _changed_registers(one: TaskDescriptor, two: TaskDescriptor) -> set[int]:
    both = one.registers.keys() | two.registers.keys()
    return {address for address in both if one.registers.get(address) != two.registers.get(address)}


def count_ops_per_task(ane_ops: int, programs: Sequence[CompiledProgram]) -> dict[str, Any]:
    """Ops that were predicted or planned for the Neural Engine beside the tasks that they became."""
    tasks = sum(len(program.tasks) if program.told_tasks is None else program.told_tasks for program in programs)
    return {"ane_ops": ane_ops, "tasks": tasks, "ops_per_task": round(ane_ops / tasks, 3) if tasks else None}
