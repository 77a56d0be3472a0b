"""Find programs of thousands of ops, or of large weights, whose first load takes minutes."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=70,
    kind="load",
    condition="2,000 ops or more in one function, or a weight file of 600 MB or more",
    effect="minutes before the first prediction, as the device compiles for the Neural Engine; later loads are cached",
    source="ml-stable-diffusion#9 (2 to 3 minutes, by size and number of ops) and #292 (273 s); argmax-oss-swift#309 (440 s on an "
    "M4 Pro); coremltools#2758 (140 s for 667 MB)",
    confidence="medium",
    do="load once in the background after the install; cut into chunks; keep the .mlmodelc at a fixed path, so that the cache holds",
    only_ane=True,
    level="note",
)
MOST_OPS, MOST_BYTES = 2000, 600_000_000


def find(scene: Scene) -> Iterator[Place]:
    size = scene.program.weight_file_bytes
    if len(scene.sites) >= MOST_OPS or size >= MOST_BYTES:
        yield Place("", "", f"{len(scene.sites):,} ops, {size / 1e6:,.0f} MB of weights")
