"""Interpret a task's registers: geometry, engine, operation, and its reads from and writes to memory.

A register that a task does not write is ignored: the sources disagree whether it then keeps the value of the previous
task.
"""

from dataclasses import dataclass

from ane_sweep.hwx import facts
from ane_sweep.hwx.stream import TaskStream

CORES = 16  # parts that a kernel is cut into, one for each core of the Neural Engine
_SIDES = (("src1", "reads"), ("src2", "reads"), ("dst", "writes"))
_TYPE_UNKNOWN, _NE = "?", "NE"
_NEGATED = 3  # of PE's second source


@dataclass(frozen=True)
class Transfer:
    """One DMA transfer of a task. `of` is the name of the tensor or section if the container gives it; `bytes` includes padding."""

    does: str  # reads, writes
    of: str | None
    bar: int | None
    offset: int
    row_bytes: int | None
    plane_bytes: int | None
    bytes: int | None


@dataclass(frozen=True)
class TaskDescriptor:
    index: int
    id: int
    offset: int
    words: int
    estimate_us: int  # the compiler's own, in about microseconds; 0 if there is none
    engine: str
    operation: str
    geometry: dict[str, int]
    transfers: list[Transfer]
    constant_bytes: int
    constant_parts: int
    registers: dict[int, int]
    unexplained: int  # registers outside the blocks that are known

    def shape(self, side: str) -> str:
        """Return a shape as `64x1x1`, channels first; "?" for a size that the task does not write."""
        return "x".join(str(self.geometry.get(f"{side}_{axis}", "?")) for axis in "chw")


def read_task(index: int, stream: TaskStream, layout: str, places: dict[int, str]) -> TaskDescriptor:
    """Interpret the registers of one task by the tables of its layout.

    `places`: number of a base address -> its tensor or section, as far as the container gives it.
    """
    values = {
        name: field.extract(stream.registers[field.address])
        for name, field in facts.fields(layout).items()
        if field.address in stream.registers
    }
    head = {key: field.extract(stream.header[field.address]) for key, field in facts.fields(layout, "headers").items()}
    parts = _constant_part_bytes(stream.registers, layout)
    engine, operation = _name_work(values)
    geometry = {name: values[name] for name in _GEOMETRY if name in values}
    return TaskDescriptor(
        index, head.get("id", 0), stream.offset, stream.words, head.get("estimate", 0), engine, operation, geometry,
        _read_transfers(stream, values, head, layout, places), sum(parts), len(parts), dict(sorted(stream.registers.items())),
        sum(facts.find_block(layout, address) is None for address in stream.registers),
    )  # fmt: skip


_GEOMETRY = (
    "in_c", "in_h", "in_w", "in_d", "out_c", "out_h", "out_w", "kernel_w", "kernel_h", "stride_x", "stride_y", "pad_x", "pad_y",
    "groups", "tile_h", "in_format", "out_format", "kernel_format", "palette", "palette_bits", "sparse",
)  # fmt: skip


def _name_work(values: dict[str, int]) -> tuple[str, str]:
    """Return (engine, operation), from the task's type and the registers of that engine."""
    kind = values.get("task_type")
    if kind is None or kind not in facts.engines():
        return _TYPE_UNKNOWN, "?" if kind is None else f"task type {kind}"
    engine, names = facts.engines()[kind], facts.operations()
    if engine != _NE:
        return engine, _name_planar_operation(kind, values)
    op, then = values.get("ne_op", 0), values.get("ne_nonlinear", 0)
    does = names.get(("ne_op", op), f"NE operation {op}")
    return engine, f"{does}, then {names.get(('ne_nonlinear', then), f'nonlinear {then}')}" if then else does


def _name_planar_operation(kind: int, values: dict[str, int]) -> str:
    names = facts.operations()
    does = names["task_type", kind]
    if pool := values.get("pe_pool"):
        return f"{does}: {names.get(('pe_pool', pool), f'pool {pool}')}"
    if does != "elementwise" or values.get("pe_second") == 0:
        return does
    op = values.get("pe_op", 0)
    if op == 0 and values.get("pe_second") == _NEGATED:
        return names["pe_second", _NEGATED]
    return names.get(("pe_op", op), f"PE operation {op}")


def _constant_part_bytes(registers: dict[int, int], layout: str) -> list[int]:
    """Return the bytes of each part of the kernel that the task fetches."""
    known = facts.fields(layout)
    if "coefficient_on" not in known:
        return []
    on, size = known["coefficient_on"], known["coefficient_size"]
    return [
        registers.get(size.address + 4 * part, 0)
        for part in range(CORES)
        if on.extract(registers.get(on.address + 4 * part, 0))
    ]


def _read_transfers(
    stream: TaskStream, values: dict[str, int], head: dict[str, int], layout: str, places: dict[int, str]
) -> list[Transfer]:
    transfers = []
    for side, does in _SIDES:
        bar = head.get(f"{side}_bar") if head.get(f"{side}_bar_on") else None
        if bar is None and f"{side}_base" in values:
            bar = stream.bars.get(facts.fields(layout)[f"{side}_base"].address)
        if bar is None and not values.get(f"{side}_on"):
            continue
        row, plane, offset = (values.get(f"{side}_{name}") for name in ("row", "plane", "base"))
        size = _count_bytes(row, plane, values, "out" if side == "dst" else "in")
        transfers.append(Transfer(does, places.get(-1 if bar is None else bar), bar, offset or 0, row, plane, size))
    return transfers


def _count_bytes(row: int | None, plane: int | None, values: dict[str, int], end: str) -> int | None:
    """Return the bytes that a tensor occupies, padding included; planes may be further apart than their rows need."""
    height, channels = values.get(f"{end}_h"), values.get(f"{end}_c")
    if plane is None or channels is None:
        return None
    return channels * (min(plane, row * height) if row and height else plane)
