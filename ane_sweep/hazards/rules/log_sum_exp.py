"""Find log(sum(exp(x))) without a shift by the largest x."""

from ane_sweep.hazards.rule import HazardRule

RULE = HazardRule(
    order=11,
    kind="numerics",
    condition="fp16 reduce_log_sum_exp, or log(sum(exp(x))) in single ops, of numbers that are not shifted",
    effect="the result is 0 once sum(exp(x)) exceeds 65,504 (x > 7.63 over 32 channels); in single ops it is infinite",
    source="coremltools#2690 (M3 Max), #2726; rustnn#213 (M4)",
    confidence="high",
    mends=("logsumexp_shifted",),
)
