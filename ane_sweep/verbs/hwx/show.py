"""Text of a program: its compiler, tensors, constants and tasks; of one task with all its registers; of several compared."""

from collections import Counter
from dataclasses import asdict
from textwrap import wrap

from ane_sweep import tables
from ane_sweep.hwx import comparison, facts
from ane_sweep.hwx.program import CompiledProgram, Constants
from ane_sweep.hwx.tasks import TaskDescriptor
from ane_sweep.hwx.tensors import TensorBinding
from ane_sweep.terminal import count

MAX_ROWS = 200  # of the table of tasks; --json has them all
_WIDE = 116


def text(program: CompiledProgram) -> str:
    rows = [("compiler", _compiler(program)), ("tasks", _tasks(program))]
    rows += [(tensor.role, _tensor(tensor)) for tensor in program.tensors]
    rows += [("constants", _constants(item)) for item in program.constants]
    if program.scratch_bytes:
        rows.append(("scratch", size(program.scratch_bytes)))
    if program.unknown_commands:
        unread = ", ".join(f"{count} of {command:#x}" for command, count in program.unknown_commands.items())
        rows.append(("not read", f"load commands that no table names: {unread}"))
    head = f"{program.path}: {program.generation.name} ({program.generation.chips}), {size(program.bytes)}"
    parts = [head, *(f"  {name:<10}{value}" for name, value in rows), *_flags(program)]
    return "\n".join([*parts, *([_table(program.tasks)] if program.tasks else [])])


def size(count: int) -> str:
    """Format a number of bytes for people, exact below 10 KB."""
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1e3:.1f} KB" if count < 1e6 else f"{count / 1e6:.1f} MB"


def _compiler(program: CompiledProgram) -> str:
    held = program.compiler
    if held.version is None:
        return "does not name itself"
    return f"{held.name} v{held.version}" + (f" for {held.target}" if held.target else "")


def _tasks(program: CompiledProgram) -> str:
    told = "does not say how many" if program.declared_tasks is None else f"says {program.declared_tasks}"
    if program.undecoded:
        return f"not decoded: {program.undecoded}; the container {told}"
    used = Counter(task.engine for task in program.tasks)
    engines = ", ".join(f"{count} {engine}" for engine, count in sorted(used.items()))
    doubt = "" if program.agrees is not False else ": THESE DIFFER"
    return f"{len(program.tasks)} ({engines or 'none'}); the container {told}{doubt}"


def _tensor(tensor: TensorBinding) -> str:
    shape = "x".join(map(str, tensor.shape))
    return f"{tensor.name} {tensor.element} {shape}, {size(tensor.bytes)}, {tensor.wasted:.0%} of it padding"


def _constants(item: Constants) -> str:
    kernels = f"; {count(item.kernels, 'kernel')} in {count(item.parts, 'part')}" if item.kernels else ""
    return f"{item.section} {size(item.bytes)}, {size(item.nonzero_bytes)} of it not zero{kernels}"


def _flags(program: CompiledProgram) -> list[str]:
    """Return the flags as on the compiler's command line: `--name=value`, `-t h13`."""
    flags = " ".join(
        f"{name}{'=' if name.startswith('--') else ' '}{value}" if value else name
        for name, value in program.compiler.flags.items()
    )
    return wrap(flags, _WIDE, initial_indent="  flags     ", subsequent_indent=" " * 12, break_on_hyphens=False)


def _table(tasks: list[TaskDescriptor]) -> str:
    heads = ("task", "engine", "operation", "in (CxHxW)", "out", "kernel", "reads", "writes", "constants", "about us")
    rows = [
        (
            str(task.index), task.engine, task.operation, task.shape("in"), task.shape("out"), kernel(task),
            ", ".join(list_moved(task, "reads")), ", ".join(list_moved(task, "writes")),
            f"{size(task.constant_bytes)} in {task.constant_parts}" if task.constant_parts else "-",
            str(task.estimate_us) if task.estimate_us else "-",
        )
        for task in tasks[:MAX_ROWS]
    ]  # fmt: skip
    more = f"\n... and {len(tasks) - MAX_ROWS} more (--json has all)" if len(tasks) > MAX_ROWS else ""
    return tables.aligned(rows, heads=heads, right=(0, 9)) + more


def kernel(task: TaskDescriptor) -> str:
    """Return height, width and stride of a task's kernel, as `3x3 / 2`; "-" if the task has none."""
    held = task.geometry
    if "kernel_w" not in held:
        return "-"
    stride = max(held.get("stride_x", 1), held.get("stride_y", 1))
    return f"{held.get('kernel_h', '?')}x{held['kernel_w']}" + (f" / {stride}" if stride > 1 else "")


def list_moved(task: TaskDescriptor, does: str) -> list[str]:
    """Return what a task reads or writes: each place, its offset and its size."""
    texts = []
    for item in task.transfers:
        if item.does == does:
            place = item.of or (f"base {item.bar}" if item.bar is not None else "?")
            offset = f" from {size(item.offset)} on" if item.offset else ""
            texts.append(f"{place}{offset}" + (f" ({size(item.bytes)})" if item.bytes else ""))
    return texts or ["L2"]


def one(program: CompiledProgram, task: TaskDescriptor) -> str:
    """Draw a task as text, and list every register that it writes, by block."""
    layout = program.generation.layout
    reads, writes = list_moved(task, "reads"), list_moved(task, "writes")
    wide = max(map(len, reads))
    inner = f"[ {task.engine}: {task.operation}, {task.shape('in')} -> {task.shape('out')}, kernel {kernel(task)} ]"
    lines = [f"{program.path}, task {task.index}: {task.words} words at byte {task.offset} of __TEXT,__text", ""]
    lines += [f"  {item:<{wide}} --+" for item in reads[1:]]
    lines.append(f"  {reads[0]:<{wide}} --+-> {inner} --> {', '.join(writes)}")
    if task.constant_parts:
        lines.append(f"  {'':<{wide}}       ^ {describe_constants(task)}")
    rows = []
    # of the sixteen coefficient registers only the first has a name
    names = {field.address: field.register for field in facts.fields(layout).values()}
    for address, word in task.registers.items():
        block = facts.find_block(layout, address)
        rows.append((block.name if block else "?", f"{address:#07x}", f"{word:#010x}", names.get(address, "")))
    return "\n".join([*lines, "", tables.aligned(rows, heads=("block", "address", "value", "register"))])


def describe_constants(task: TaskDescriptor) -> str:
    return f"{size(task.constant_bytes)} of constants for {count(task.constant_parts, 'core')}"


def compare(programs: list[CompiledProgram]) -> str:
    """Return a table with a column per program, and the differences from the first program."""
    first, columns = programs[0], [asdict(comparison.summarise_program(program)) for program in programs]
    rows = [(name.replace("_", " "), *(_format_value(name, column[name]) for column in columns)) for name in columns[0]]
    lines = [tables.aligned(rows), ""]
    for program in programs[1:]:
        found = comparison.compare_programs(first, program)
        lines.append(f"{program.path} against {first.path}: {_summary(found, first, program)}")
        for item in found["tasks"][:20]:
            pairs = ((name, pair) for name, pair in item.items() if isinstance(pair, list))
            lines.append(f"  task {item['task']}: {', '.join(f'{name} {a} -> {b}' for name, (a, b) in pairs)}")
        for name, flags in found["flags"].items():
            lines.append(f"  flag {name}: {' -> '.join('absent' if flag is None else flag or 'set' for flag in flags)}")
    return "\n".join(lines)


def _format_value(name: str, value: int | str | None) -> str:
    return size(value) if name.endswith("bytes") and isinstance(value, int) else "?" if value is None else str(value)


def _summary(found: comparison.Differences, first: CompiledProgram, other: CompiledProgram) -> str:
    counts = f"{count(len(other.tasks), 'task')} against {len(first.tasks)}; "
    is_same = first.generation.layout == other.generation.layout
    registers = f"{found['registers']} registers" if is_same else "registers not compared across generations"
    differing = f"differing: {len(found['tasks'])} in what they do, {registers}, {len(found['flags'])} flags"
    return differing if len(other.tasks) == len(first.tasks) else counts + differing
