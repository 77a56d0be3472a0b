"""Find a softplus that was written out as log(1 + exp(x))."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene, find_rewrite_places

RULE = HazardRule(
    order=14,
    kind="numerics",
    condition="fp16 log(1 + exp(x)) in single ops",
    effect="infinite where x > 11.09, as exp(x) overflows fp16",
    source="coreai-torch#21; the range of fp16",
    confidence="high",
    mends=("log1p_exp_shifted",),
)


def find(scene: Scene) -> Iterator[Place]:
    yield from find_rewrite_places(scene, "log1p_exp_shifted")
