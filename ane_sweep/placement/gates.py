"""Gates: limits on a whole program that do not depend on single ops. Sizes, depth, and shapes that make the ANE compiler fail.

effect "cpu"    the whole program leaves the ANE
effect "slow"   weights of a size that was seen to stream slowly; no op moves
effect "risk"   the compiler may fail or take minutes, after which the program leaves the ANE silently
"""

import math
from collections.abc import Sequence

from ane_sweep.mil.cuts import LAYERS
from ane_sweep.placement.chips import Chip
from ane_sweep.placement.programs import Program
from ane_sweep.placement.sites import Site, Tensor
from ane_sweep.placement.sizes import MAX_IOS_BYTES, MAX_WEIGHT_FILE_BYTES
from ane_sweep.placement.types import Gate

MAX_DEPTH = 383
# One author measured the DMA notch (after eiln's reading of the DMA): within 16 KiB of a multiple of 1 MiB a core, weights
# stream at 17 to 19 GB/s in place of 45 to 60. 2048 x 4096 hits it exactly.
CORES, STEP, REACH = 16, 1 << 20, 16 << 10
SOURCE = "kasper0406/stablehlo-coreml#110 (one author, one M4), after eiln"


def check(program: Program, chip: Chip, mapped_before: int = 0) -> list[Gate]:
    """Return the gates that a program fails. `mapped_before`: weight bytes of the chunks that are loaded before it."""
    found = [*_sizes(program, chip, mapped_before), *_enumerated(program)]
    for sites in program.functions.values():
        found += _depth(sites)
        found += _shapes(sites, chip)
        found += _notch(sites)
    return found


def _sizes(program: Program, chip: Chip, mapped_before: int) -> list[Gate]:
    found, size = [], program.weight_file_bytes
    if size > MAX_WEIGHT_FILE_BYTES:
        found.append(
            Gate(
                "weight_file", "cpu", f"the weight file has {size} bytes, above the maximum of {MAX_WEIGHT_FILE_BYTES}",
                "cut the program into chunks, or compress its weights", "coremltools#2593 (Core ML's own log)", "high",
            )
        )  # fmt: skip
    elif chip.ios and size > MAX_IOS_BYTES:
        found.append(
            Gate(
                "ios_size", "cpu", f"{size} bytes of weights; on iPhone and iPad a program for the ANE stays below 1 GB",
                "cut the program into chunks, or palettise to 6 bits or fewer",
                "coremltools mlmodel-utilities and ml-stable-diffusion READMEs", "high",
            )
        )  # fmt: skip
    limit = chip.mapped_limit_bytes
    if limit is not None and mapped_before + size > limit:
        found.append(
            Gate(
                "mapped_memory", "cpu",
                f"with the chunks before it {mapped_before + size} bytes are mapped, above the {limit} of this chip",
                "compress the weights, or load fewer chunks at a time", "more-ane-transformers notes (ioreg, vm-size)", "medium",
            )
        )  # fmt: skip
    return found


def _enumerated(program: Program) -> list[Gate]:
    if not any(one.kind == "enumerated" for one in program.flexible):
        return []
    if not any(site.type == "layer_norm" for site in program.sites):
        return []
    return [
        Gate(
            "enumerated_layer_norm", "risk",
            "layer_norm in a program of enumerated shapes: seen to keep all of it off the ANE (175 ms against 20)",
            "write the norm as single ops, or convert with one shape", "coremltools#1909 (2023, one program)", "low",
        )
    ]  # fmt: skip


def _depth(sites: Sequence[Site]) -> list[Gate]:
    depth = longest_chain(sites)
    if depth <= MAX_DEPTH:
        return []
    return [
        Gate(
            "depth", "cpu", f"{depth} layers in a chain; the ANE compiler fails above {MAX_DEPTH}",
            "cut the program into chunks", "751K (387 on h18g); maderix/ANE", "low",
        )
    ]  # fmt: skip


def longest_chain(sites: Sequence[Site]) -> int:
    """Return the number of layers (ops that multiply matrices) on the longest path from an input to an output."""
    depth: dict[int, int] = {}
    longest = 0
    for site in sites:
        before = max((depth.get(id(tensor), 0) for tensors in site.inputs.values() for tensor in tensors), default=0)
        here = before + (site.type in LAYERS)
        longest = max(longest, here)
        for tensor in site.outputs:
            depth[id(tensor)] = here
    return longest


def _shapes(sites: Sequence[Site], chip: Chip) -> list[Gate]:
    found: dict[str, Gate] = {}
    for site in sites:
        if site.type in ("conv", "conv_transpose"):
            _convolution(site, found)
        limit = chip.axis_limit
        for tensor in site.outputs:
            if (
                chip.generation < 16
                and tensor.rank
                and max(n or 0 for n in tensor.shape[-2:]) > limit
                and site.type in LAYERS
            ):
                found.setdefault(
                    "axis",
                    Gate(
                        "axis", "risk", f"{site.type} makes {tensor!r}: an axis above {limit} can fail the whole compile",
                        "split the axis, or move it to the channels", "FluidAudio#121; executorch#7907", "medium",
                    ),
                )  # fmt: skip
    first = sites[0] if sites else None
    if first is not None and first.type == "band_part":
        found["band_part_first"] = Gate(
            "band_part_first", "risk", "the program begins with band_part, after which whole chunks went to the CPU",
            "make the causal mask a constant", "more-ane-transformers notes (Apr 2023, macOS 13)", "low",
        )  # fmt: skip
    return list(found.values())


def _convolution(site: Site, found: dict[str, Gate]) -> None:
    weight = site.tensor("weight")
    kernel = weight.shape[2:] if weight is not None else ()
    strides = site.value("strides", ()) or ()
    if len(kernel) == 2 and min(n or 0 for n in kernel) >= 16:
        found.setdefault(
            "kernel_16",
            Gate(
                "kernel_16", "risk", f"a {kernel[0]}x{kernel[1]} convolution: 16x16 compiled for 200 s in 11.7 GB",
                "stack smaller convolutions", "751K (M4)", "medium",
            ),
        )  # fmt: skip
    if any(step in (5, 7) for step in strides) and weight is not None and (weight.shape[1] or 0) <= 4:
        found.setdefault(
            "stride",
            Gate(
                "stride", "risk", f"strides {tuple(strides)} from {weight.shape[1]} channels: the ANE compile may not end",
                "use strides of 2 to 4 or 8, or more input channels", "coremltools#2473", "low",
            ),
        )  # fmt: skip


def payload_bytes(site: Site) -> int | None:
    """Return bytes of fp16 weights for each core, ceil(N / 16) * D * prod(kernel) * 2, or None without such weights."""
    weight = _weight(site)
    if weight is None or weight.packing is not None or weight.rank < 2 or not weight.is_static:
        return None
    sizes = [length or 1 for length in weight.shape]
    if site.type == "matmul":
        columns = sizes[-2] if site.value("transpose_y", False) else sizes[-1]
    else:
        columns = sizes[0]
    return math.ceil(columns / CORES) * (math.prod(sizes) // columns) * 2


def _weight(site: Site) -> Tensor | None:
    found = {"conv": "weight", "linear": "weight", "matmul": "y"}.get(site.type)
    weight = site.tensor(found) if found is not None else None
    return weight if weight is not None and weight.const else None


def is_hit(payload: int) -> bool:
    """Return True if `payload` bytes a core lie within 16 KiB of a multiple of 1 MiB."""
    nearest = max(1, round(payload / STEP)) * STEP
    return abs(payload - nearest) <= REACH


def _notch(sites: Sequence[Site]) -> list[Gate]:
    """Return one gate of effect "slow" if weights of the program hit the notch; it moves no op."""
    hit = [(site, payload) for site in sites if (payload := payload_bytes(site)) is not None and is_hit(payload)]
    if not hit:
        return []
    site, payload = hit[0]
    return [
        Gate(
            "dma_notch", "slow",
            f"{len(hit)} of its products read {payload} bytes of weights a core ({site.type} {site.name}), within 16 KiB of a "
            "multiple of 1 MiB: seen to stream at 17 to 19 GB/s in place of 45 to 60",
            "cut or pad the output channels so that ceil(N / 16) * D * kernel * 2 bytes is another size", SOURCE, "low",
        )
    ]  # fmt: skip
