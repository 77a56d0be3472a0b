"""Find tests for NaN, which does not survive on the Neural Engine."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene, find_rewrite_places

RULE = HazardRule(
    order=43,
    kind="numerics",
    condition="x != x",
    effect="a NaN sentinel becomes a number before the test, so the branch for it is never taken",
    source="FluidAudio#679",
    confidence="medium",
    do="pass the sentinel as an input of its own",
    only_ane=True,
)


def find(scene: Scene) -> Iterator[Place]:
    yield from find_rewrite_places(scene, "nan_sentinels")
