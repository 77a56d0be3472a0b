"""Find log(cumsum(exp(x))) without a shift."""

from ane_sweep.hazards.rule import HazardRule

RULE = HazardRule(
    order=13,
    kind="numerics",
    condition="fp16 log(cumsum(exp(x)))",
    effect="infinite, then NaN, beyond x = 11.09",
    source="coremltools#2729, #2727",
    confidence="medium",
    mends=("logcumsumexp_shifted",),
)
