"""Weight recipes: the options of `precision.weights`, their defaults, and the OS that each one needs. Standard library
only.

    kind                linear | palettized | sparse | mixed | float
    bits                linear: 8, 4   palettized: 8, 6, 4, 3, 2, 1   mixed: wanted average, or null with min_psnr_db
                        float: 8 (e4m3), 4 (e2m1): Core AI's alone
    granularity         linear, float: per_tensor, per_channel, per_block   palettized: per_tensor, per_grouped_channel
    block_size          inputs that share a scale (per_block)
    group_size          output channels that share a table (per_grouped_channel)
    mode                linear: symmetric, asymmetric   palettized: kmeans, uniform
    per_channel_scale   palettized: each channel divided by its largest magnitude first
    sparsity            share of each weight set to zero, or "n:m" (n of every m inputs); with linear or palettized the
                        rest is compressed as well (joint compression)
    candidates          mixed: the widths a weight may get
    min_psnr_db         mixed, in place of bits: the smallest size at which the PSNR of each output reaches it
    activations         null | int8: inputs and outputs of linear, conv, pool and add ops, calibrated on sentences
    min_elements        weights with fewer numbers stay uncompressed (1-D ones always do)
    skip                patterns (`*layer_0*`, `gather`) of weights that stay: name of the weight, or name or type of an op
    overrides           [{match: pattern, ...}]: other values for weights that match; the last match holds

`settings.py` in ane_sweep/worker/compress resolves a recipe weight by weight.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from ane_sweep.bridge.axes import TARGETS

Recipe = dict[str, Any]

MOST = 10**9  # of a number of channels or elements: no weight here is larger
PALETTE_BITS = (1, 2, 3, 4, 6, 8)
_COMMON: dict[str, object] = {"activations": None, "min_elements": 2048, "skip": [], "overrides": []}
# kind -> its fields with their defaults
FIELDS: dict[str, dict[str, object]] = {
    "linear": {"bits": 8, "granularity": "per_channel", "block_size": 32, "mode": "symmetric", "sparsity": None},
    "palettized": {
        "bits": 4, "granularity": "per_tensor", "group_size": 16, "mode": "kmeans", "per_channel_scale": False,
        "sparsity": None,
    },
    "sparse": {"sparsity": 0.5},
    "mixed": {"bits": 4, "min_psnr_db": None, "candidates": [2, 3, 4, 6, 8]},
    "float": {"bits": 8, "granularity": "per_channel", "block_size": 32},
}  # fmt: skip
_WHY = {
    "linear": "Core ML has whole numbers of these widths alone",
    "float": "coreai-opt has floats of these widths alone",
    "palettized": "Core ML's tables have indices of these widths alone; kind=mixed with bits=5 reaches an average between",
}
_CHOICES: dict[tuple[str, str], tuple[object, ...]] = {
    ("linear", "bits"): (4, 8),
    ("linear", "granularity"): ("per_tensor", "per_channel", "per_block"),
    ("linear", "mode"): ("symmetric", "asymmetric"),
    ("float", "bits"): (4, 8),
    ("float", "granularity"): ("per_tensor", "per_channel", "per_block"),
    ("palettized", "bits"): PALETTE_BITS,
    ("palettized", "granularity"): ("per_tensor", "per_grouped_channel"),
    ("palettized", "mode"): ("kmeans", "uniform"),
}


def problems(weights: object) -> list[str]:
    """Return every problem of `precision.weights`, one sentence each. (null means no compression.)"""
    if weights is None:
        return []
    found = _problems_of(weights, "precision.weights", _COMMON)
    if found or not isinstance(weights, Mapping) or not (overrides := weights.get("overrides")):
        return found
    if weights["kind"] == "mixed":
        return ["precision.weights.overrides: mixed chooses the bits itself; leave weights out with skip"]
    for index, override in enumerate(overrides):
        where = f"precision.weights.overrides[{index}]"
        if not isinstance(override, Mapping) or not isinstance(override.get("match"), str):
            found.append(f"{where}={override!r:.100}: expected a mapping with match: PATTERN and what differs")
        elif override.get("kind") == "mixed":
            found.append(f"{where}: mixed weighs all weights against each other and cannot hold for some")
        else:
            found += _problems_of(_apply_override(weights, override), where, {"min_elements": 0})
    return found


def canonical(weights: Mapping[str, Any] | None) -> Recipe | None:
    """Return the recipe with its defaults and without options that have no effect, so that equivalent recipes are equal."""
    if weights is None:
        return None
    recipe = {"kind": weights["kind"], **FIELDS[weights["kind"]], **_COMMON, **weights}
    recipe["overrides"] = [
        {"match": override["match"], **_fill_defaults(_apply_override(weights, override))}
        for override in recipe["overrides"]
    ]
    return _fill_defaults(recipe)


def calibration(recipe: Recipe) -> dict[str, object] | None:
    """Return the measurements that a recipe needs first, as `params` of stage calibrate; None if it needs none."""
    wanted: dict[str, object] = {}
    if recipe["kind"] == "mixed":
        wanted["sensitivity"] = {name: recipe[name] for name in ("candidates", "min_elements", "skip")}
    if recipe["activations"]:
        wanted["ranges"] = True
    return wanted or None


def least_target(recipe: Recipe) -> tuple[str, str]:
    """Return (the first iOS version that supports the recipe, the feature that requires it). A test checks it against
    coremltools 9.0; see also its `_quantization_passes.py`: joint compression, sub-channel tables and blocks, 4-bit
    numbers, 3-bit tables.
    """
    reasons = [("iOS16", "compressed weights"), *_reasons(recipe)]
    for override in recipe["overrides"]:
        reasons += _reasons(override)
    return max(reasons, key=lambda reason: TARGETS.index(reason[0]))


def average_bits(recipe: Recipe) -> float:
    """Return the average bits per weight before tables, scales and uncompressed weights are counted, for the planner's estimates."""
    bits = 16.0 if recipe["kind"] == "sparse" else float(recipe["bits"] or max(recipe["candidates"]))
    if (sparsity := recipe.get("sparsity")) is None:
        return bits
    zeros = parse_sparsity(sparsity)
    return (1 - zeros if isinstance(zeros, float) else 1 - zeros[0] / zeros[1]) * bits + 1  # a bit of the mask


def parse_sparsity(sparsity: float | str) -> tuple[int, int] | float:
    """Parse a sparsity: `0.75` stays a number, "2:4" becomes (2, 4)."""
    if isinstance(sparsity, str):
        n, m = sparsity.split(":")
        return int(n), int(m)
    return float(sparsity)


def _reasons(recipe: Mapping[str, Any]) -> list[tuple[str, str]]:
    kind = recipe["kind"]
    rules = (
        (kind == "linear" and recipe["bits"] == 4, "iOS18", "4-bit linear weights"),
        (recipe.get("granularity") == "per_block", "iOS18", "scales per block"),
        (recipe.get("granularity") == "per_grouped_channel", "iOS18", "tables per grouped channel"),
        (bool(recipe.get("per_channel_scale")), "iOS18", "scales beside a table"),
        (kind == "palettized" and recipe["bits"] == 3, "iOS18", "3-bit tables"),
        (kind == "mixed" and 3 in recipe["candidates"], "iOS18", "3-bit tables"),
        (kind in ("linear", "palettized") and recipe.get("sparsity") is not None, "iOS18", "joint compression"),
        (bool(recipe.get("activations")), "iOS17", "quantized activations"),
    )
    return [(target, what) for holds, target, what in rules if holds]


def _apply_override(weights: Mapping[str, object], override: Mapping[str, object]) -> dict[str, object]:
    """Return the recipe for weights that an override matches; if the override changes the kind, that kind's defaults hold."""
    changes = {name: value for name, value in override.items() if name != "match"}
    base = {name: value for name, value in weights.items() if name not in _COMMON}
    if changes.get("kind", weights["kind"]) != weights["kind"]:
        base = {}
    return {**base, "min_elements": weights.get("min_elements", _COMMON["min_elements"]), **changes}


def _fill_defaults(recipe: Mapping[str, Any]) -> Recipe:
    """Fill in the recipe's defaults and drop the sizes of other granularities; `min_psnr_db` replaces `bits`."""
    full = {**FIELDS[recipe["kind"]], **recipe}
    if full.get("granularity") != "per_block":
        full.pop("block_size", None)
    if full.get("granularity") != "per_grouped_channel":
        full.pop("group_size", None)
    if full["kind"] == "mixed":
        full["candidates"] = sorted(set(full["candidates"]))
        full["bits"] = None if full["min_psnr_db"] is not None else full["bits"]
    return full


def _problems_of(weights: object, where: str, common: Mapping[str, object]) -> list[str]:
    kind = weights.get("kind") if isinstance(weights, Mapping) else weights
    if not isinstance(weights, Mapping) or not isinstance(kind, str) or kind not in FIELDS:
        return [f"{where}.kind={kind!r:.100}: unknown; choices: {', '.join(FIELDS)}"]
    known = {"kind", *FIELDS[kind], *common}
    found = [
        f"{where}.{name!s:.100}: nothing reads this key of kind {kind}; it has: {', '.join(sorted(known))}"
        for name in weights
        if name not in known
    ]
    for name, value in weights.items():
        choices = _CHOICES.get((kind, name))
        if choices and (value not in choices or isinstance(value, bool)):
            why = f"; {_WHY[kind]}" if name == "bits" else ""
            found.append(f"{where}.{name}={value!s:.100}: choices for {kind}: {', '.join(map(str, choices))}{why}")
        elif not choices and name in _RULES and not _RULES[name][0](value):
            found.append(f"{where}.{name}={value!r:.100}: expected {_RULES[name][1]}")
    if not found and kind == "sparse" and weights.get("sparsity", 0.5) is None:
        found.append(f"{where}.sparsity=None: kind sparse is nothing without it; expected {_RULES['sparsity'][1]}")
    if weights.get("per_channel_scale") and weights.get("sparsity") is not None:
        found.append(
            f"{where}: coremltools cannot put scales beside a table of a sparse weight; leave one of the two out"
        )
    if not found and kind == "mixed":
        recipe: Recipe = {**FIELDS["mixed"], **weights}
        bits, least, most = recipe["bits"], min(recipe["candidates"]), max(recipe["candidates"])
        if recipe["min_psnr_db"] is None and not (_number(bits) and least <= bits <= most):
            found.append(f"{where}.bits={bits}: expected an average from {least} to {most}")
    return found


def _number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST


def _ratio(value: object) -> bool:
    if isinstance(value, str):
        n, colon, m = value.partition(":")
        return bool(colon) and n.isdecimal() and m.isdecimal() and len(m) < 6 and len(n) < 6 and 0 < int(n) < int(m)
    return value is None or (_number(value) and 0 < value < 1)


_RULES: dict[str, tuple[Callable[[object], bool], str]] = {
    "block_size": (lambda v: _is_whole_number(v, 2), "a whole number of 2 or more"),
    "group_size": (lambda v: _is_whole_number(v, 1), "a whole number of 1 or more"),
    "min_elements": (lambda v: _is_whole_number(v, 0), "a whole number of 0 or more"),
    "per_channel_scale": (lambda v: isinstance(v, bool), "true or false"),
    "sparsity": (_ratio, 'a share between 0 and 1, or "n:m" with n under m'),
    "candidates": (
        lambda v: isinstance(v, list) and bool(v) and all(_is_whole_number(b, 1) and b in PALETTE_BITS for b in v),
        f"a list of widths out of {', '.join(map(str, PALETTE_BITS))}",
    ),
    "min_psnr_db": (lambda v: v is None or _number(v), "a number or null"),
    "activations": (lambda v: v in (None, "int8"), "int8 or null"),
    "skip": (lambda v: isinstance(v, list) and all(isinstance(one, str) for one in v), "a list of patterns"),
    "overrides": (lambda v: isinstance(v, list), "a list of mappings"),
}
