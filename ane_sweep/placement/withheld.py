"""Forms of programs that get no estimate, because published figures contradict the terms of one.

Each message quotes the published figures. A form leaves this list when a term explains it.
"""

from collections.abc import Sequence

from ane_sweep.placement.chips import Chip
from ane_sweep.placement.sites import Site

VOCABULARY_ABOVE = 16_384  # channels that a convolution makes
_MASKS = ("add", "select", "mul", "sub")


def explain_withholding(
    sites: Sequence[Site], units: Sequence[str], chip: Chip, has_layout: bool = False
) -> str | None:
    """Return the reason why a program on the Neural Engine of a chip gets no estimate, or None if it gets one.

    `has_layout`: the cost of attention over all heads at once was measured on this machine.
    """
    there = [site for site, unit in zip(sites, units, strict=True) if unit == "ane"]
    if chip.generation < 16 and any(_is_wide_head(site) for site in there):
        return (
            f"{chip.chip}: a convolution that makes more than {VOCABULARY_ABOVE:,} channels for many tokens: on an M1 Max GPT-2 of this "
            "form took 519 ms, of which its other terms explain 32, and one of 18 M parameters 157 against 7 without its head "
            "(more-ane-transformers); select the last token before it, or cut it into pieces"
        )
    if chip.generation == 13 and not has_layout and _masks_all_heads(there):
        return (
            f"{chip.chip}: attention of all heads at once whose mask is computed from an input: DistilBERT of this form took 55 ms on an "
            "M1 Max with 15 % of its ops on the CPU, 8.7 in the Neural Engine's form, and 56 against 4.4 on an M1; which ops those "
            "were is not published"
        )
    return None


def _is_wide_head(site: Site) -> bool:
    if site.type != "conv" or not site.outputs:
        return False
    shape = [size or 1 for size in site.outputs[0].shape]
    return len(shape) > 2 and shape[1] > VOCABULARY_ABOVE and site.outputs[0].elements > shape[0] * shape[1]


def _masks_all_heads(sites: Sequence[Site]) -> bool:
    """Return True if a softmax over the scores of several heads reads scores with a computed mask."""
    masked = {
        id(site.outputs[0])
        for site in sites
        if site.type in _MASKS and site.outputs and len(site.data) > 1 and site.outputs[0].rank == 4
    }
    scores = [site for site in sites if site.type == "softmax" and site.outputs and site.outputs[0].rank == 4]
    return any(
        min(size or 1 for size in site.outputs[0].shape[1:3]) > 1 and any(id(tensor) in masked for tensor in site.data)
        for site in scores  # (B, H, S, S); head by head it is (B, S, 1, S)
    )
