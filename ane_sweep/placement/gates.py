"""Gates: limits on a whole program that do not depend on single ops. Sizes, depth, and shapes that make the ANE compiler fail.

Their effects, words and sources are in data/gates.json.
"""

import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from ane_sweep.mil.cuts import LAYERS
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.programs import Program
from ane_sweep.placement.sites import Site
from ane_sweep.placement.sizes import MAX_IOS_BYTES, MAX_WEIGHT_FILE_BYTES
from ane_sweep.placement.types import Gate

DATA = Path(__file__).parent / "data" / "gates.json"
MAX_DEPTH = 383
# One author measured the DMA notch (after eiln's reading of the DMA): within 16 KiB of a multiple of 1 MiB a core, weights
# stream at 17 to 19 GB/s in place of 45 to 60. 2048 x 4096 hits it exactly.
CORES, STEP, REACH = 16, 1 << 20, 16 << 10


@cache
def _texts() -> dict[str, dict[str, str]]:
    texts: dict[str, dict[str, str]] = json.loads(DATA.read_text(encoding="utf-8"))["gates"]
    return texts


def _make_gate(name: str, /, **facts: object) -> Gate:
    row = _texts()[name]
    return Gate(name, **{**row, "reason": row["reason"].format(**facts)})


def check(program: Program, chip: Chip, mapped_before: int = 0) -> list[Gate]:
    """Return the gates (limits on a whole program) that a program violates. `mapped_before`: weight bytes of the chunks loaded earlier."""
    found = [*_sizes(program.weight_file_bytes, chip, mapped_before)]
    if any(one.kind == "enumerated" for one in program.flexible) and any(
        site.type == "layer_norm" for site in program.sites
    ):
        found.append(_make_gate("enumerated_layer_norm"))
    for sites in program.functions.values():
        first: dict[str, Gate] = {}
        for gate in _function_gates(sites, chip):
            first.setdefault(gate.gate, gate)
        found += first.values()
    return found


def _sizes(size: int, chip: Chip, mapped_before: int) -> Iterator[Gate]:
    if size > MAX_WEIGHT_FILE_BYTES:
        yield _make_gate("weight_file", size=size, most=MAX_WEIGHT_FILE_BYTES)
    elif chip.ios and size > MAX_IOS_BYTES:
        yield _make_gate("ios_size", size=size)
    limit = chip.mapped_limit_bytes
    if limit is not None and mapped_before + size > limit:
        yield _make_gate("mapped_memory", mapped=mapped_before + size, limit=limit)


def _function_gates(sites: Sequence[Site], chip: Chip) -> Iterator[Gate]:
    """Yield the gates of one function; of several with one name the first counts. That of effect "slow" moves no op."""
    if (depth := longest_chain(sites)) > MAX_DEPTH:
        yield _make_gate("depth", depth=depth, most=MAX_DEPTH)
    for site in sites:
        if site.type in ("conv", "conv_transpose"):
            yield from _convolution(site)
        for tensor in site.outputs if chip.generation < 16 and site.type in LAYERS else ():
            if max((n or 0 for n in tensor.shape[-2:]), default=0) > chip.axis_limit:
                yield _make_gate("axis", op=site.type, tensor=tensor, limit=chip.axis_limit)
    if sites and sites[0].type == "band_part":
        yield _make_gate("band_part_first")
    payloads = ((site, payload_bytes(site)) for site in sites)
    if hit := [(site, payload) for site, payload in payloads if payload is not None and is_hit(payload)]:
        site, payload = hit[0]
        yield _make_gate("dma_notch", count=len(hit), payload=payload, op=site.type, name=site.name)


def longest_chain(sites: Sequence[Site]) -> int:
    """Return the number of layers (ops that multiply matrices) on the longest path from an input to an output."""
    depth: dict[int, int] = {}
    longest = 0
    for site in sites:
        before = max((depth.get(id(tensor), 0) for tensors in site.inputs.values() for tensor in tensors), default=0)
        here = before + (site.type in LAYERS)
        longest = max(longest, here)
        depth |= {id(tensor): here for tensor in site.outputs}
    return longest


def _convolution(site: Site) -> Iterator[Gate]:
    weight, strides = site.tensor("weight"), site.value("strides", ()) or ()
    if weight is None:
        return
    kernel = weight.shape[2:]
    if len(kernel) == 2 and min(n or 0 for n in kernel) >= 16:
        yield _make_gate("kernel_16", kernel=kernel)
    if any(step in (5, 7) for step in strides) and (weight.shape[1] or 0) <= 4:
        yield _make_gate("stride", strides=tuple(strides), channels=weight.shape[1])


def payload_bytes(site: Site) -> int | None:
    """Return the bytes of fp16 weights for each core, ceil(N / 16) * D * prod(kernel) * 2, or None for an op without such weights."""
    weight = site.tensor({"conv": "weight", "linear": "weight", "matmul": "y"}.get(site.type, ""))
    if weight is None or not weight.const or weight.packing is not None or weight.rank < 2 or not weight.is_static:
        return None
    sizes = [length or 1 for length in weight.shape]
    axis = 0 if site.type != "matmul" else -2 if site.value("transpose_y", False) else -1
    return math.ceil(sizes[axis] / CORES) * (math.prod(sizes) // sizes[axis]) * 2


def is_hit(payload: int) -> bool:
    """Return True if `payload` bytes per core are within 16 KiB of a multiple of 1 MiB."""
    nearest = max(1, round(payload / STEP)) * STEP
    return abs(payload - nearest) <= REACH
