"""Find attention over so many keys that the Neural Engine's compiler failed."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=77,
    kind="load",
    condition="softmax, or fused attention, over more than 16,384 keys",
    effect="the Neural Engine's compile fails silently, and a request took 38 times as long (32,768 keys; 8,192 were fine)",
    source="NVMAI#7 (M5, macOS 26.5)",
    confidence="low",
    do="keep a history of 8,192 keys or fewer in one program, or attend in slices of keys",
    only_ane=True,
)
MOST = 16_384


def find(scene: Scene) -> Iterator[Place]:
    for site in scene.sites:
        tensor = site.tensor("key") if site.type == "scaled_dot_product_attention" else None
        if site.type == "softmax" and site.outputs and site.outputs[0].rank >= 3:
            tensor = site.outputs[0]
        if tensor is None or tensor.rank < 2:
            continue
        axis = int(site.value("axis", -1)) if site.type == "softmax" else -2
        keys = tensor.shape[axis] or 0
        if keys > MOST:
            yield Place(site.name, site.type, f"{keys:,} keys")
