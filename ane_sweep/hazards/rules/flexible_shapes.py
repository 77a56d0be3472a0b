"""Find inputs of several shapes, whose program is compiled again, or leaves the Neural Engine."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene

RULE = HazardRule(
    order=73,
    kind="load",
    condition="an input that takes a range of shapes, or more than eight enumerated ones",
    effect="other shapes than the default leave the Neural Engine (30 for 570 predictions a second) or are compiled when first used",
    source="coremltools#2370; gigastt#42 (369 against 23.6 ms); ml-stable-diffusion#306 (5 times slower)",
    confidence="medium",
    do="convert one package for each of the few shapes that count, or a function for each in one package",
    only_ane=True,
)
MANY = 8  # enumerated shapes


def find(scene: Scene) -> Iterator[Place]:
    if ranged := [one.name for one in scene.program.flexible if one.kind == "range"]:
        yield Place("", "", f"a range of shapes for {', '.join(ranged)}")
    for one in scene.program.flexible:
        if len(one.shapes) > MANY:
            yield Place("", "", f"input {one.name} takes {len(one.shapes)} shapes")
