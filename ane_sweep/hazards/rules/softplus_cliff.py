"""Find softplus, and mish with it, of numbers that may exceed 10.39."""

from collections.abc import Iterator

from ane_sweep.hazards.bounds import bound
from ane_sweep.hazards.rule import HazardRule, Place, Scene, find_rewrite_places

RULE = HazardRule(
    order=10,
    kind="numerics",
    condition="fp16 softplus whose operand the program does not keep below 10.39",
    effect="softplus is 0, not x, where x > 10.39, and so is mish",
    source="coremltools#2687 (M3 Max, macOS 26.3), #2359, #2618",
    confidence="high",
    mends=("softplus_shifted",),
    only_ane=True,
)
CLIFF = 10.39


def find(scene: Scene) -> Iterator[Place]:
    for place in find_rewrite_places(scene, "softplus_shifted"):
        maker = scene.graph.maker(place.name)
        if maker is not None and bound(scene.graph, maker.read("x"))[1] > CLIFF:
            yield place
