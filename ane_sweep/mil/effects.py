"""List the modes of numerics and the known effects of the Neural Engine's arithmetic, each with source and confidence.

`DEFAULT` are the effects that were measured by more than one party or on more than one chip; the others can be switched
on by name. Nothing heavy is imported.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ane_sweep.errors import ConfigError

MODES = ("fp16", "fp32", "ane")
LIMIT = 32768.0  # of the accumulator (Q15.16): at this magnitude a running sum becomes infinite and stays so
GRAIN = 2.0**-16  # its products are multiples of this
PRODUCT_NS = 4.0  # of a core to round one product (measured: 3.6 for 128x768x768, 250 times a plain matrix product)
RUN = 32  # products summed between two looks at the accumulator; the hardware's own order is not known


@dataclass(frozen=True)
class Effect:
    """One effect. `confidence`: "several" parties or chips measured it, "one" did, or sources "conflict" about it."""

    name: str
    what: str
    source: str
    confidence: str


EFFECTS = {
    effect.name: effect
    for effect in (
        Effect(
            "accumulator",
            f"products of matrices, attention and convolutions too: a running sum of magnitude {LIMIT:.0f} or more becomes "
            "infinite and stays so; the "
            f"bias is the first summand; looked at every {RUN} products",
            "fixed-point accumulator probes on M4 and M6; the same limit on M1, M1 Max, M2 Pro, M4, M5 and M5 Pro",
            "several",
        ),
        Effect(
            "products",
            "each product that such a sum is made of is rounded to a multiple of 2^-16, halves away from zero, and is 0 where "
            "the exponents of its operands add up to -17 or less (768 products of 1e-3 and 1e-3 vanish)",
            "fixed-point accumulator probes on M4 and M6",
            "several",
        ),
        Effect(
            "operands",
            "the same read infinite operands as 65536 and NaN as 98304",
            "accumulator probes on M4; NaN seen to vanish before isnan in a converted language model",
            "several",
        ),
        Effect(
            "softplus_cliff",
            "softplus is 0 where exp(x) reaches the accumulator's limit (x > 10.397)",
            "coremltools issues 2359 and 2687, pull request 2618",
            "several",
        ),
        Effect(
            "logsumexp_cliff",
            "reduce_log_sum_exp is 0 where the sum of exp(x) exceeds the largest fp16 number (32 channels of x > 7.62)",
            "coremltools issue 2690 and pull request 2726; rustnn pull request 213, on M4",
            "several",
        ),
        Effect(
            "tables",
            "sigmoid, tanh, gelu, silu and erf by linear interpolation between 33 knots; knots evenly spaced over a range "
            "fitted to the published largest errors (3.4e-3, 1.6e-3, 6.2e-3, 1.5e-2, 8.6e-4)",
            "activation probes on M4; deviations of tanh of the same kind on M5",
            "several",
        ),
        Effect("gelu_tanh", "gelu EXACT is computed as its tanh approximation", "activation probes on M4", "one"),
        Effect("positive_zero", "-0 becomes 0 in every result", "accumulator probes on M4", "one"),
        Effect(
            "narrow_sums", "reduce_sum and reduce_mean sum in fp16, element after element", "probes on M1 to M5", "one"
        ),
        Effect(
            "half_away",
            "the same round halves away from zero (2049 becomes 2050)",
            "probes on M4; another party finds halves to even",
            "conflict",
        ),
        Effect("flush", "denormal results become 0", "probes on M1; not on M4", "conflict"),
    )
}
DEFAULT = tuple(name for name, effect in EFFECTS.items() if effect.confidence == "several")


def select_effects(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return the effects with these names, in the order of the table; None selects DEFAULT. Raises ConfigError."""
    wanted = DEFAULT if names is None else tuple(names)
    if unknown := [name for name in wanted if name not in EFFECTS]:
        raise ConfigError(f"unknown effect {unknown[0]!r} of numerics=ane; known: {', '.join(EFFECTS)}")
    return tuple(name for name in EFFECTS if name in wanted)
