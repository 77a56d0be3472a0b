"""Find programs with more transformer layers than phones could load as one."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=76,
    kind="load",
    condition="more than 24 attentions in one program for a phone",
    effect="the compiler may fail: 35 layers did not load on an iPhone 17 Pro, 15 to 20 did; a cap of some 24 to 31 layers elsewhere",
    source="CoreML-LLM's notes; ANEForge#254; speech-swift#282 (28 layers in two programs)",
    confidence="low",
    do="cut into chunks (ane-sweep chunk)",
    only_ane=True,
)
MOST = 24


def find(scene: Scene) -> Iterator[Place]:
    attentions = sum(site.type == "scaled_dot_product_attention" for site in scene.sites)
    attentions = attentions or sum(site.type == "softmax" for site in scene.sites)
    if scene.chip.ios and attentions > MOST:
        yield Place("", "", f"{attentions} attentions")
