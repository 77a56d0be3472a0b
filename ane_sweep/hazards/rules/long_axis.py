"""Find layers whose spatial axes are so long that the Neural Engine's compiler takes minutes, then fails."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=71,
    kind="load",
    condition="a conv, pool or norm whose result has a spatial axis above the chip's limit (16,384; 65,536 from A17 Pro and M4)",
    effect="the compiler tiles it for minutes, then fails, and the whole program runs on the CPU (159 s on an M5 Pro, 12 times slower)",
    source="speech-swift#464 and #466 ([1, 48, 479014]); FluidAudio#121; coremltools#2247 (5568 x 5568)",
    confidence="high",
    do="compute the axis in pieces, or keep this program on cpu_and_gpu",
)
_LAYERS = ("conv", "conv_transpose", "avg_pool", "max_pool", "instance_norm", "batch_norm", "upsample_nearest_neighbor",
           "upsample_bilinear", "resize_bilinear")  # fmt: skip
MOST_ELEMENTS = 5000 * 5000  # of one plane: 5568 x 5568 failed


def find(scene: Scene) -> Iterator[Place]:
    if scene.compute_units not in ("all", "cpu_and_ne"):
        return
    for site in scene.sites:
        if site.type not in _LAYERS or not site.outputs:
            continue
        spatial = [size or 0 for size in site.outputs[0].shape[2:]]
        longest = max(spatial, default=0)
        if longest > scene.chip.axis_limit:
            yield Place(site.name, site.type, f"an axis of {longest:,}, above {scene.chip.axis_limit:,}")
        elif len(spatial) == 2 and spatial[0] * spatial[1] >= MOST_ELEMENTS:
            yield Place(site.name, site.type, f"planes of {spatial[0]:,} x {spatial[1]:,}")
