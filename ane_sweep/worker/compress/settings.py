"""The weights of a program, and the setting of a recipe for each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch

from ane_sweep.bridge import recipes
from ane_sweep.reference.site import from_numpy
from ane_sweep.worker.pymil import PymilProgram

_PIECE = 1 << 20
_STRUCTURED = {"conv", "linear"}  # where coremltools 9.0 prunes n of m


@dataclass(frozen=True)
class Weight:
    """A constant of two or more dimensions that ops read.

    readers   names and types of the ops that read it
    inputs, outputs   its axes of input and output channels; None if its readers disagree
    nested    True inside a loop or branch
    """

    name: str
    value: np.ndarray
    types: frozenset[str]
    readers: frozenset[str]
    inputs: int | None
    outputs: int | None
    nested: bool = False

    def matches(self, pattern: str) -> bool:
        return any(fnmatchcase(name, pattern) for name in (self.name, *self.types, *self.readers))


@dataclass
class Resolved:
    """The settings of all weights by name.

    adapted   the changes to settings that a weight's shape does not allow
    left      name -> reason why the weight stays uncompressed
    doubts    warnings about overrides that change nothing
    """

    settings: dict[str, recipes.Recipe]
    adapted: dict[str, str]
    left: dict[str, str]
    doubts: list[str]


def list_weights(program: PymilProgram) -> list[Weight]:
    """List the float constants of rank 2 and more in a coremltools program, in order."""
    from coremltools.optimize import _utils

    found = []
    for function in program.functions.values():
        for op in function.find_ops(op_type="const"):
            value, readers = op.outputs[0].val, op.outputs[0].child_ops
            if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.ndim < 2 or not readers:
                continue
            inputs, outputs = _utils.select_input_output_channel_axis(op)
            types = frozenset(reader.op_type for reader in readers)
            names = frozenset(reader.name for reader in readers)
            nested = op.enclosing_block.outer_op is not None
            found.append(Weight(op.name, value, types, names, inputs, outputs, nested))
    return found


def resolve(
    weights: list[Weight],
    recipe: recipes.Recipe,
    bits: dict[str, int] | None = None,
    release: Callable[[], None] = lambda: None,
) -> Resolved:
    """Return the setting of each weight. `bits`: name -> bits, for a mixed recipe; `release` is called after each weight is read."""
    done = Resolved({}, {}, {}, _find_unmatched(weights, recipe))
    for weight in weights:
        own = [override for override in recipe["overrides"] if weight.matches(override["match"])]
        source = own[-1] if own else recipe
        setting = {name: source[name] for name in source if name not in ("match", "skip", "overrides", "activations")}
        if recipe["kind"] == "mixed":
            setting = {
                **recipes.FIELDS["palettized"],
                "kind": "palettized",
                "bits": (bits or {}).get(weight.name, 0),
                "min_elements": recipe["min_elements"],
            }
        reason = _explain_exclusion(weight, recipe, setting["min_elements"])
        release()
        if reason:
            done.left[weight.name] = reason
            continue
        fitted, change = _fit(weight, setting)
        done.settings[weight.name] = fitted
        if change:
            done.adapted[weight.name] = change
    return done


def _find_unmatched(weights: list[Weight], recipe: recipes.Recipe) -> list[str]:
    """Return a sentence for each pattern of overrides that matches no weight, with names that would."""
    patterns = dict.fromkeys(override["match"] for override in recipe["overrides"])
    names = [weight.name for weight in weights]
    few = ", ".join(dict.fromkeys([*names[:1], *names[len(names) // 2 :][:1], *names[-1:]]))
    return [
        f"precision.weights.overrides: {pattern} matches no weight, nor the name or type of an op that reads one, so it "
        f"changes nothing; of {len(names)} weights some are {few}"
        for pattern in patterns
        if not any(weight.matches(pattern) for weight in weights)
    ]


def _explain_exclusion(weight: Weight, recipe: recipes.Recipe, least: int) -> str | None:
    for pattern in recipe["skip"]:
        if weight.matches(pattern):
            return f"skip: {pattern}"
    if weight.nested and recipe["kind"] == "mixed":
        return "it is inside a loop or branch, where the noise of one weight is not measured"
    if weight.value.size < least:
        return f"{weight.value.size} numbers are fewer than min_elements={least}"
    if weight.inputs is None or weight.outputs is None:
        return "its readers disagree on which axis holds the channels"
    # numpy's of fp16 takes 25 times as long
    low, high = (one.item() for one in torch.aminmax(from_numpy(weight.value)))
    numbers = weight.value.reshape(-1)
    if not np.isfinite(low) or not np.isfinite(high):
        return "it holds values that are not finite"
    parts = (numbers[start : start + _PIECE] for start in range(0, numbers.size, _PIECE))
    if all(((part == low) | (part == high)).all() for part in parts):
        return "it is a mask of two values"
    return None


def _fit(weight: Weight, setting: recipes.Recipe) -> tuple[recipes.Recipe, str | None]:
    """Return the setting adapted to this weight's shape, and a description of the changes or None.

    coremltools itself would leave such a weight uncompressed, and with per_channel_scale even damaged (it divides in
    place before it checks).
    """
    fitted, changes = dict(setting), []
    assert weight.inputs is not None and weight.outputs is not None
    columns, rows = (weight.value.shape[axis] for axis in (weight.inputs, weight.outputs))
    if fitted.get("granularity") == "per_block" and columns % fitted["block_size"]:
        changes.append(f"blocks of {fitted['block_size']} do not divide its {columns} inputs: one scale per channel")
        fitted["granularity"] = "per_channel"
    if fitted.get("granularity") == "per_grouped_channel" and rows % fitted["group_size"]:
        changes.append(f"groups of {fitted['group_size']} do not divide its {rows} channels: one table")
        fitted["granularity"] = "per_tensor"
    if isinstance(fitted.get("sparsity"), str):
        n, m = recipes.parse_sparsity(fitted["sparsity"])  # type: ignore[misc]
        if not weight.types <= _STRUCTURED or m > columns / 2:
            changes.append(f"{fitted['sparsity']} is for linear and conv with {2 * m} inputs or more: {n / m:g} of all")
            fitted["sparsity"] = n / m
    return fitted, "; ".join(changes) or None


def split_groups(weight: Weight, setting: recipes.Recipe, value: np.ndarray) -> list[np.ndarray]:
    """Split an array over the weight's channels into the parts that have a table each, as coremltools cuts them."""
    if setting["granularity"] == "per_tensor":
        return [value]
    assert weight.outputs is not None
    value = np.swapaxes(value, 0, weight.outputs)
    return np.split(value, len(value) // setting["group_size"], axis=0)
