"""Find the logarithm of a softmax, which is -infinity where a probability vanishes in fp16."""

from ane_sweep.hazards.rule import HazardRule

RULE = HazardRule(
    order=12,
    kind="numerics",
    condition="fp16 log(softmax(x)), or x - logsumexp(x)",
    effect="-infinity for every class 17 or more below the largest, as fp16 has no smaller probability",
    source="coremltools#2728, #2727",
    confidence="medium",
    mends=("log_softmax_shifted",),
)
