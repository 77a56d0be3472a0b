"""The DMA notch: weights were seen to stream slowly if their size is near a multiple of 1 MiB a core.

One author measured it (kasper0406/stablehlo-coreml#110, after eiln's reading of the DMA): within 16 KiB of a multiple of
1 MiB a core, weights stream at 17 to 19 GB/s in place of 45 to 60. 2048 x 4096 hits it exactly.
"""

import math
from collections.abc import Sequence

from ane_sweep.bridge.figures import Gate
from ane_sweep.placement.sites import Site, Tensor

CORES, STEP, REACH = 16, 1 << 20, 16 << 10
SOURCE = "kasper0406/stablehlo-coreml#110 (one author, one M4), after eiln"


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


def check(sites: Sequence[Site]) -> list[Gate]:
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
