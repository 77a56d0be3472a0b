"""Amounts of work that a program gives each unit, counted from its ops; an estimate multiplies them by rates (latency.py).

    flop          FLOP of products and convolutions
    weights       bytes of weights in their stored form, each counted once; `notched` of them fall into the DMA's notch, `palettes`
                  of them belong to 4-bit palettes
    moved         bytes that ops read or make; `spilled`: the part of a value beyond the chip's cache, which goes through memory
    heads         bytes of products over several heads at once, (B, H, S, S): layouts are changed for them
    head_flop     FLOP of products head by head: small ones, which are slow on a GPU
    wide_io       bytes of fp32 inputs and outputs of the program: they are converted on the way (fp16 ones are not)
    ops           number of ops that are not mere views of another value; `tasks`: those among them that are not done
                  together with the op before

An element-wise op is done together with the op before it; only the second operand of a sum counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ane_sweep.placement import costs
from ane_sweep.placement.sites import Site, Tensor

VIEWS = {
    "reshape", "expand_dims", "squeeze", "cast", "slice_by_index", "slice_by_size", "split", "concat", "identity", "gather",
}  # fmt: skip
RIDERS = {"relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "clip", "sigmoid_hard", "hardswish"}
SUMS = {"add", "mul", "sub", "real_div"}
# Working set at which M1 (2.3 MB) and M5 (4.7 MB) slow down (Bryngelson); between them by neighbour
CACHE_BYTES = {"H11": 2.3e6, "H12": 2.3e6, "H13": 2.3e6, "H14": 2.3e6, "H15": 4.0e6}
_LATER_CACHE_BYTES = 4.7e6
_MIB, _NOTCH_BYTES, _CORES, _LEAST = 2**20, 2**14, 16, 2**19
_CPU_BYTES_PER_MS = 6.1e7


@dataclass
class Load:
    """Amounts of work on one unit."""

    flop: float = 0.0
    weights: float = 0.0
    notched: float = 0.0
    palettes: float = 0.0
    spilled: float = 0.0
    heads: float = 0.0
    head_flop: float = 0.0
    wide_io: float = 0.0
    ops: int = 0
    tasks: int = 0
    moved: float = 0.0


@dataclass
class Work:
    """The work of one chunk on the Neural Engine, the CPU and the GPU, with the number of changes between them.

    cpu_ms   cost of the CPU's ops in the M4's planner (costs.py); a lookup costs the rows that it reads
    ane_ms   the same cost of the Neural Engine's ops
    """

    ane: Load = field(default_factory=Load)
    cpu: Load = field(default_factory=Load)
    gpu: Load = field(default_factory=Load)
    cpu_ms: float = 0.0
    ane_ms: float = 0.0
    cpu_ops: int = 0
    transitions: int = 0

    def share(self, count: int) -> "Work":
        """Return the work of one chunk if this work is cut into `count` equal chunks."""
        ane, cpu, gpu = (_part(load, count) for load in (self.ane, self.cpu, self.gpu))
        return replace(self, ane=ane, cpu=cpu, gpu=gpu, cpu_ms=self.cpu_ms / count, ane_ms=self.ane_ms / count)


def _part(load: Load, count: int) -> Load:
    parts = {name: value / count for name, value in vars(load).items()}
    return Load(**parts | {"ops": -(-load.ops // count), "tasks": -(-load.tasks // count)})


def load_of(amounts: dict[str, float]) -> Load:
    """Return a Load with the given amounts by name; all others are 0."""
    made = Load()
    for name, amount in amounts.items():
        setattr(made, name, amount)
    return made


def cache_bytes(family: str) -> float:
    return CACHE_BYTES.get(family, _LATER_CACHE_BYTES)


def work_of(sites: Sequence[Site], units: Sequence[str], transitions: int, cache: float) -> Work:
    """Return the work of a chunk, including the planner's costs."""
    work = count_work(sites, units, cache)
    work.transitions = transitions
    for site, unit in zip(sites, units, strict=True):
        if unit == "cpu":
            work.cpu_ms += lookup_ms(site) if site.type == "gather" else costs.estimate_ms(site, "cpu")
        else:
            work.ane_ms += costs.estimate_ms(site, "ane")
    return work


def count_work(sites: Sequence[Site], units: Sequence[str], cache: float) -> Work:
    """Count a chunk's amounts of work without the planner's costs; weights used by several ops count once.

    `cache`: the largest value, in bytes, that stays on the chip.
    """
    work = Work()
    seen: set[int] = set()
    for site, unit in zip(sites, units, strict=True):
        work.cpu_ops += unit == "cpu"
        count(getattr(work, unit), site, cache, seen)
    _io(work, sites, units)
    return work


def count(load: Load, site: Site, cache: float, seen: set[int]) -> None:
    """Add the work of an op to `load`; `seen` holds the ids of weights already counted."""
    load.flop += flop(site)
    if site.type == "gather":  # reads the rows that it takes
        return
    for tensor in site.constants:
        if tensor.elements > 16 and id(tensor) not in seen:
            seen.add(id(tensor))
            size = tensor.bytes if tensor.stored_bytes is None else tensor.stored_bytes
            load.weights += size
            load.notched += size if in_notch(tensor) else 0
            if "lut" in (tensor.packing or "") and tensor.elements / 2 <= size <= tensor.elements / 2 * 1.1 + 64:
                load.palettes += size  # of 4 bits: a quarter of its fp16 size, plus the palette
    if site.type in VIEWS:
        return
    load.ops += 1
    load.tasks += site.type not in RIDERS | SUMS
    if site.type not in RIDERS:
        moved = site.data[1:] if site.type in SUMS else [*site.data, *site.outputs]
        load.spilled += sum(max(0.0, tensor.bytes - cache) for tensor in moved)
        load.moved += sum(tensor.bytes for tensor in moved)
    if site.type in ("matmul", "einsum", "scaled_dot_product_attention") and len(site.data) > 1:
        if _at_once(site):
            load.heads += sum(tensor.bytes for tensor in [*site.data, *site.outputs])
        else:
            load.head_flop += flop(site)


def flop(site: Site) -> float:
    """Return an op's multiplications and additions; an einsum has two for each combination of its indices."""
    if site.type != "einsum":
        return costs.flop(site)
    sizes = _letters(site)
    return 2.0 * math.prod(sizes.values()) if sizes else 0.0


def _letters(site: Site) -> dict[str, int]:
    """Return the size of each letter of an einsum, or {} if its equation cannot be read."""
    equation, operands = str(site.value("equation", "")), site.inputs.get("values", [])
    written = equation.replace(" ", "").partition("->")[0].split(",")
    if list(map(len, written)) != [one.rank for one in operands]:
        return {}
    return {letter: size or 1 for text, one in zip(written, operands) for letter, size in zip(text, one.shape)}


def _at_once(site: Site) -> bool:
    """Return True if a product of two values covers several heads at once: it repeats along an axis other than the batch."""
    if site.type == "einsum":
        sizes, (read, _, made) = _letters(site), str(site.value("equation", "")).partition("->")
        first, _, second = read.partition(",")
        return any(sizes.get(one, 1) > 1 for one in set(first) & set(second) & set(made[1:]) - {made[:1]})
    made_shape = site.outputs[0].shape if site.outputs else ()
    return len(made_shape) > 2 and (made_shape[-3] or 1) > 1


def in_notch(weight: Tensor) -> bool:
    """Return True if one core's bytes of an fp16 weight lie within 16 KiB of a multiple of 1 MiB.

    ceil(N / 16) * D * prod(kernel) * 2 bytes (kasper0406/stablehlo-coreml#110, one author; 2048 x 4096 hits it exactly).
    """
    if weight.rank < 2 or weight.stored_bytes is not None or weight.dtype != "fp16":
        return False
    payload = -(-(weight.shape[0] or 1) // _CORES) * math.prod(size or 1 for size in weight.shape[1:]) * 2
    return payload > _LEAST and abs(payload - round(payload / _MIB) * _MIB) <= _NOTCH_BYTES


def _io(work: Work, sites: Sequence[Site], units: Sequence[str]) -> None:
    made = {id(tensor) for site in sites for tensor in site.outputs}
    read = {id(tensor) for site in sites for tensor in site.data}
    counted: set[int] = set()
    for site, unit in zip(sites, units, strict=True):
        load: Load = getattr(work, unit)
        edges = [tensor for tensor in site.data if id(tensor) not in made]
        for tensor in edges + [tensor for tensor in site.outputs if id(tensor) not in read]:
            if tensor.dtype == "fp32" and id(tensor) not in counted:
                counted.add(id(tensor))
                load.wide_io += tensor.bytes


def lookup_ms(site: Site) -> float:
    """Return the milliseconds of a lookup on the CPU by the rows it reads; the planner's estimate counts the whole table."""
    return 2 * sum(tensor.bytes for tensor in site.outputs) / _CPU_BYTES_PER_MS
