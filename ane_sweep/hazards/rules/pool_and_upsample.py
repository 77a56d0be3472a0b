"""Find large pools with a nearest-neighbour upsampling after them, with which a load never ended."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=75,
    kind="load",
    condition="max_pool of 8 x 8 or more with stride 8, and a nearest-neighbour upsampling by as much",
    effect="loading did not end with the Neural Engine allowed; with CPU and GPU it was fast",
    source="coremltools#2367 (one super-resolution net)",
    confidence="low",
    do="pool in steps of 2, or load this program with cpu_and_gpu",
    only_ane=True,
)
SIZE = 8


def find(scene: Scene) -> Iterator[Place]:
    grows = any(site.type in ("upsample_nearest_neighbor", "resize_nearest_neighbor") for site in scene.sites)
    for site in scene.sites if grows else ():
        kernel, strides = site.value("kernel_sizes", ()) or (), site.value("strides", ()) or ()
        if site.type == "max_pool" and min(kernel, default=0) >= SIZE and min(strides, default=0) >= SIZE:
            yield Place(site.name, site.type)
