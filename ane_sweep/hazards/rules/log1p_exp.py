"""Find a softplus that was written out as log(1 + exp(x))."""

from ane_sweep.hazards.rule import HazardRule

RULE = HazardRule(
    order=14,
    kind="numerics",
    condition="fp16 log(1 + exp(x)) in single ops",
    effect="infinite where x > 11.09, as exp(x) overflows fp16",
    source="coreai-torch#21; the range of fp16",
    confidence="high",
    mends=("log1p_exp_shifted",),
)
