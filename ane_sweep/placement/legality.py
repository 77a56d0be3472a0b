"""Legality of an op on each unit, with the reason: data/rules.json applied to a description of the op.

A rule names one of the tests below. A test returns the offending part of an op as text for the reason, or None if the
op passes. Tests look at types, shapes and constants, never at names.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from ane_sweep.placement.chips import Chip
from ane_sweep.placement.sites import Site, Tensor

DATA = Path(__file__).parent / "data" / "rules.json"
UNITS = ("cpu", "gpu", "ane")
Rule = dict[str, Any]
Test = Callable[[Site, Rule, Chip], str | None]
_INTEGERS = ("constexpr_affine_dequantize", "constexpr_blockwise_shift_scale")
DISPUTED = (
    "{ops} on the ANE read integer weights, of which two sources say opposite things (confidence low): int8 per channel ran there "
    "(ane-book, M4 Max: 438 of 438 ops), int4 and int8 were planned for the CPU alone (stablehlo-coreml#110, one M4)"
)
# Trust in a rule by its basis, best first; reports show the words on the right.
TRUST = {"documented": "high", "confirmed": "high", "measured": "medium", "inferred": "low", "guess": "low"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The units that support an op and, if the ANE does not, the rule that refuses the op, with reason and advice."""

    supported: tuple[str, ...]
    rule: str | None = None
    reason: str | None = None
    advice: str | None = None
    source: str | None = None
    confidence: str = "medium"


@cache
def content() -> dict[str, Any]:
    rules: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return rules


@cache
def _rules_for(generation: int, op_type: str) -> list[Rule]:
    """Return the rules for one op type on one ANE family, in the file's order."""
    return [
        rule
        for rule in content()["rules"]
        if int(rule.get("from", "H0")[1:]) <= generation <= int(rule.get("until", "H99")[1:])
        and op_type in rule.get("ops", (op_type,))
    ]


def judge(site: Site, chip: Chip) -> Verdict:
    """Return the units of a chip that can run an op. The CPU runs every op."""
    for rule in _rules_for(chip.generation, site.type):
        if (what := TESTS[rule["test"]](site, rule, chip)) is not None:
            advice = rule["advice"]
            if advice == "{op_advice}":
                advice = content()["op_advice"].get(site.type, "compute it outside the program")
            units = tuple(unit for unit in UNITS if unit != "ane" and unit not in rule.get("also", ()))
            return Verdict(
                units, rule["id"], rule["reason"].format(op=site.type, what=what), advice, rule["source"],
                "high" if rule["seen"] and chip.is_calibrated else TRUST[rule["confidence"]],
            )  # fmt: skip
    return Verdict(UNITS, confidence="low" if disputed(site) else _accepted(site.type, chip))


def disputed(site: Site) -> bool:
    """Return True if an op reads weights about which two sources disagree (data/claims.csv, `integer_weights`)."""
    packings = (t.packing or "" for tensors in site.inputs.values() for t in tensors if t.const)
    return any(packing.startswith(_INTEGERS) for packing in packings)


def _accepted(op_type: str, chip: Chip) -> str:
    """Return the confidence that the ANE accepts an op: high if an M4 was seen to accept its type."""
    seen, said = _accepted_types()
    if op_type in seen:
        return "high" if chip.is_calibrated else "medium"
    return "medium" if chip.is_calibrated and op_type in said else "low"


@cache
def _accepted_types() -> tuple[set[str], set[str]]:
    content = json.loads((DATA.parent / "accepted.json").read_text(encoding="utf-8"))
    return set(content["seen_accepted"]), set(content["said_accepted"])


def _moving(site: Site) -> list[Tensor]:
    return [*site.data, *site.outputs]


def _first(tensors: Sequence[Tensor], is_bad: Callable[[Tensor], object]) -> str | None:
    return next((repr(tensor) for tensor in tensors if is_bad(tensor)), None)


def _matches(tensors: Sequence[Tensor], rule: Rule) -> str | None:
    return _first(tensors, lambda tensor: tensor.dtype in rule["dtypes"])


def _above(length: Callable[[Site, Rule], int | None], site: Site, rule: Rule, chip: Chip) -> str | None:
    """Test for a length above the rule's limit."""
    found = length(site, rule) or 0
    return str(found) if found > rule["limit"] else None


def _axis_above(site: Site, rule: Rule, chip: Chip) -> str | None:
    """Test axis lengths, counted from the last axis: width, height, channels (rank 5: depth, channels), batch."""
    batch, depth, channels, height, width = rule["limits"]["H16" if chip.generation >= 16 else "H11"]

    def is_long(tensor: Tensor) -> bool:
        limits = [width, height, depth, channels, batch] if tensor.rank == 5 else [width, height, channels, batch]
        return any((length or 0) > limit for length, limit in zip(tensor.shape[::-1], limits))

    return _first([tensor for tensor in _moving(site) if tensor.elements > 16384], is_long)


def _inner(site: Site, rule: Rule) -> int | None:
    x = site.tensor("x")
    if x is None or x.rank < 2:
        return None
    return x.shape[-2] if site.value("transpose_x", False) else x.shape[-1]


def _inner_of_rows(site: Site, rule: Rule, chip: Chip) -> str | None:
    """Test for a product by a constant with exactly the rule's number of rows and an inner size above its limit."""
    x, weight = site.tensor("x"), site.tensor("weight") or site.tensor("y")
    if x is None or weight is None or not weight.const or x.rank < 2 or site.value("transpose_x", False):
        return None
    inner = x.shape[-1] or 1
    is_meant = x.elements // inner == rule["rows"] and inner > rule["limit"]
    return f"{rule['rows']} rows by {inner}" if is_meant else None


def _reduces_flat(site: Site, rule: Rule, chip: Chip) -> str | None:
    """Test for a reduction over height or width only, of a tensor with width 1 or over axes of length 1."""
    x, axes = site.tensor("x"), site.value("axes")
    if x is None or x.rank != 4 or not axes:
        return None
    lengths = {axis % 4: x.shape[axis] for axis in axes}
    is_flat = x.shape[3] == 1 or all(length == 1 for length in lengths.values())
    return f"axes {sorted(lengths)} of {x!r}" if is_flat and lengths.keys() <= {2, 3} else None


def _kernel(site: Site) -> tuple[int, ...]:
    """Return (height, width) of a convolution's kernel; the length of a 1-D kernel counts as a width."""
    weight = site.tensor("weight")
    spatial = tuple(length or 1 for length in weight.shape[2:]) if weight is not None else ()
    return (1, *spatial) if len(spatial) == 1 else spatial


def _flat_kernel(site: Site, rule: Rule, chip: Chip) -> str | None:
    kernel = _kernel(site)
    return str(kernel) if len(kernel) == 2 and kernel[1] == rule["width"] and kernel[0] < rule["width"] else None


def _pads_with_value(site: Site, rule: Rule, chip: Chip) -> str | None:
    value = site.value("constant_val", 0)
    return str(value) if site.value("mode", "constant") == "constant" and value else None


def _axis_of_input(site: Site, rule: Rule) -> int | None:
    tensor = site.tensor(rule["input"])
    return tensor.shape[rule["axis"]] if tensor is not None and tensor.rank >= 2 else None


def _small_blocks(site: Site, rule: Rule, chip: Chip) -> str | None:
    """Test for a weight of small integers whose scales cover at most the rule's limit of values each."""
    weight = site.tensor("weight")
    words = (weight.packing or "").split() if weight is not None else []
    if len(words) != 3 or words[1] not in rule["dtypes"] or not 1 < int(words[2]) <= rule["limit"]:
        return None
    return f"{words[1]} weights in blocks of {words[2]}"


def _attribute_is(site: Site, rule: Rule, chip: Chip) -> str | None:
    value = site.value(rule["attribute"])
    return str(value) if value == rule["value"] else None


TESTS: dict[str, Test] = {
    "op_type": lambda site, rule, chip: site.type,
    "unknown_size": lambda site, rule, chip: _first(_moving(site), lambda tensor: not tensor.is_static),
    "runtime_index": lambda site, rule, chip: _first(
        site.inputs.get("indices", [])[:1], lambda tensor: not tensor.const
    ),
    "reads_dtype": lambda site, rule, chip: _matches(site.data, rule),
    "makes_dtype": lambda site, rule, chip: _matches(site.outputs, rule),
    "any_dtype": lambda site, rule, chip: _matches(_moving(site), rule),
    # not of casts: one from or to fp32 is no arithmetic, and the ANE takes it
    "computes_dtype": lambda site, rule, chip: None if site.type == "cast" else _matches(_moving(site), rule),
    "casts_to": lambda site, rule, chip: _matches(site.outputs, rule) if site.type == "cast" else None,
    "rank_above": partial(_above, lambda site, rule: max((tensor.rank for tensor in _moving(site)), default=0)),
    "axis_above": _axis_above,
    "inner_above": partial(_above, _inner),
    "inner_of_rows": _inner_of_rows,
    "reduces_flat": _reduces_flat,
    "kernel_above": partial(
        _above, lambda site, rule: kernel[rule["axis"]] if len(kernel := _kernel(site)) >= 2 else 1
    ),
    "flat_kernel": _flat_kernel,
    "window_above": partial(_above, lambda site, rule: (site.value("kernel_sizes") or (1, 1, 1))[rule["axis"]]),
    "pads_with_value": _pads_with_value,
    "axis_of_input_above": partial(_above, _axis_of_input),
    "state_not_multiple": lambda site, rule, chip: _first(
        site.data, lambda tensor: tensor.rank and (tensor.shape[-1] or 0) % rule["multiple"]
    ),
    "small_blocks": _small_blocks,
    "attribute_is": _attribute_is,
}
