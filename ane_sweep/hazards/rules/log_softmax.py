"""Find the logarithm of a softmax, which is -infinity where a probability vanishes in fp16."""

from collections.abc import Iterator

from ane_sweep.hazards.rule import HazardRule, Place, Scene, find_rewrite_places

RULE = HazardRule(
    order=12,
    kind="numerics",
    condition="fp16 log(softmax(x)), or x - logsumexp(x)",
    effect="-infinity for every class 17 or more below the largest, as fp16 has no smaller probability",
    source="coremltools#2728, #2727",
    confidence="medium",
    mends=("log_softmax_shifted",),
)


def find(scene: Scene) -> Iterator[Place]:
    yield from find_rewrite_places(scene, "log_softmax_shifted")
