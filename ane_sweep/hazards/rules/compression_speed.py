"""Find compressed weights and activations that a chip does not compute faster."""

from collections import Counter
from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=61,
    kind="compression",
    condition="a packing of weights that the chip's generation expands to fp16, or int8 activations before A17 Pro and M4",
    effect="a smaller file, not a faster program on this chip",
    source="ANEForge's catalogue of chips; coremltools#2227 and #2410 (coremltools' authors on int8 activations)",
    confidence="medium",
    do="measure, or palettise (every chip reads palettes of 4 bits)",
    only_ane=True,
    level="note",
)
# the first generation (H14 is A15 and M2) that reads them compressed
INT8_WEIGHTS, BLOCKS, INT8_ACTIVATIONS = 14, 15, 16


def find(scene: Scene) -> Iterator[Place]:
    packed = Counter(tensor.packing for site in scene.sites for tensor in site.constants if tensor.packing)
    for packing, count in sorted(packed.items()):
        first = _find_generation(packing)
        if scene.chip.generation < first:
            yield Place(
                "", "", f"{count} weights of {packing} on {scene.chip.chip} (H{scene.chip.generation}; from H{first})"
            )
    changed = sum(site.type == "quantize" for site in scene.sites)
    if changed and scene.chip.generation < INT8_ACTIVATIONS:
        yield Place("", "", f"{changed} quantised activations on {scene.chip.chip}, which computes in fp16")


def _find_generation(packing: str) -> int:
    """Return the first generation that reads a packing compressed; 0 if every one does."""
    form, _, rest = packing.partition(" ")
    if form == "constexpr_affine_dequantize":
        return INT8_WEIGHTS
    if form == "constexpr_blockwise_shift_scale":
        dtype, _, block = rest.partition(" ")
        is_channel = dtype in ("int8", "uint8") and block in ("", "0", "1")
        return INT8_WEIGHTS if is_channel else BLOCKS
    return 0
