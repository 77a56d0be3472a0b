"""Comparison of several programs as text: a column for each program."""

from dataclasses import asdict
from typing import Any

from ane_sweep import tables
from ane_sweep.hwx import comparison
from ane_sweep.hwx.program import CompiledProgram
from ane_sweep.terminal import count
from ane_sweep.verbs.hwx.show import size


def text(programs: list[CompiledProgram]) -> str:
    """Return a table with a column for each program, and how each differs from the first."""
    columns = [asdict(comparison.summarise_program(program)) for program in programs]
    rows = [(name.replace("_", " "), *(_format_value(name, column[name]) for column in columns)) for name in columns[0]]
    lines = [tables.aligned(rows), ""]
    for program in programs[1:]:
        found = comparison.compare_programs(programs[0], program)
        lines.append(f"{program.path} against {programs[0].path}: {_summary(found, programs[0], program)}")
        lines += [f"  task {item['task']}: {_pairs(item)}" for item in found["tasks"][:20]]
        lines += [f"  flag {name}: {_flag(here)} -> {_flag(there)}" for name, (here, there) in found["flags"].items()]
    return "\n".join(lines)


def _format_value(name: str, value: Any) -> str:
    return size(value) if name.endswith("bytes") else "?" if value is None else str(value)


def _summary(found: comparison.Differences, first: CompiledProgram, other: CompiledProgram) -> str:
    counts = (
        f"{count(len(other.tasks), 'task')} against {len(first.tasks)}; "
        if len(other.tasks) != len(first.tasks)
        else ""
    )
    is_same = first.generation.layout == other.generation.layout
    registers = f"{found['registers']} registers" if is_same else "registers not compared across generations"
    return f"{counts}differing: {len(found['tasks'])} in what they do, {registers}, {len(found['flags'])} flags"


def _pairs(item: dict[str, Any]) -> str:
    return ", ".join(f"{name} {pair[0]} -> {pair[1]}" for name, pair in item.items() if name != "task")


def _flag(value: str | None) -> str:
    return "absent" if value is None else value or "set"
