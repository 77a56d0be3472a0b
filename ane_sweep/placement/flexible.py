"""The sizes of values in a program that takes several shapes.

They are computed from the inputs' shapes, so that values which cross a cut can be declared like the program's own
inputs:

    enumerated   at each of the shapes: the first of every input together, the second of every input, and so on
    a range      at its lowest, default and highest sizes, and at one between: an axis ranges from the lowest to the
                 highest result; if an input has no limit, two very large sizes show which axes have none
"""

from collections.abc import Mapping

from ane_sweep.mil import chain, package
from ane_sweep.mil.element_types import FlexibleShape
from ane_sweep.placement import defaults, programs
from ane_sweep.placement.programs import Flexible
from ane_sweep.placement.sites import Tensor

Shape = tuple[int, ...]
Bounds = tuple[tuple[int, int | None], ...]
_FAR = 8  # times the default: a size that an input without a limit is followed at


def varying(found: package.Package, function: str) -> Mapping[str, FlexibleShape]:
    """Return {name: sizes} of the values whose sizes are not fixed but follow from the inputs' shapes."""
    inputs, flexible = programs.inputs_at(found, function, {})
    if any(one.default is None for one in flexible):
        return {}
    features = {feature.name: feature for feature in chain.function_description(found.spec, function).input}
    bounds = {
        one.name: defaults.bounds(features[one.name], inputs[one.name].rank) for one in flexible if not one.shapes
    }
    if not all(bounds.values()):  # a description that says another rank than the program
        return {}
    at = [programs.values_at(found, function, chosen) for chosen in _chosen(flexible, bounds)]
    is_open = any(high is None for limits in bounds.values() for _, high in limits)
    made: dict[str, FlexibleShape] = {}
    for name, tensor in at[0].items():
        shapes = [shape for values in at if name in values and (shape := _known_shape(values[name]))]
        if tensor.is_default and len(shapes) == len(at):
            made[name] = _make_flexible(shapes, bool(bounds), is_open)
    return made


def _chosen(flexible: list[Flexible], bounds: dict[str, Bounds]) -> list[dict[str, Shape]]:
    """Return the input shapes at which the program is evaluated: the default first, two very large ones last."""
    found: list[dict[str, Shape]] = [{}]
    for index in range(max((len(one.shapes) for one in flexible), default=0)):
        found.append({one.name: one.shapes[min(index, len(one.shapes) - 1)] for one in flexible if one.shapes})
    if not bounds:
        return found
    defaults_of = {one.name: one.default or () for one in flexible}
    low = {name: tuple(low for low, _ in limits) for name, limits in bounds.items()}
    far = [
        {
            name: tuple(
                _FAR * times * size if high is None else high for (_, high), size in zip(limits, defaults_of[name])
            )
            for name, limits in bounds.items()
        }
        for times in (1, 2)
    ]
    middle = {name: tuple((a + b) // 2 for a, b in zip(low[name], far[0][name])) for name in low}
    return [*found, low, middle, *far]


def _known_shape(tensor: Tensor) -> Shape:
    """Return a tensor's shape if all sizes are known, else (); a scalar's shape is () as well."""
    sizes = tuple(size for size in tensor.shape if size is not None)
    return sizes if len(sizes) == tensor.rank else ()


def _make_flexible(shapes: list[Shape], is_range: bool, is_open: bool) -> FlexibleShape:
    different = tuple(dict.fromkeys(shapes))
    if len(different) == 1:
        return FlexibleShape(shapes[0])
    if not is_range:
        return FlexibleShape(shapes[0], shapes=different)
    ranges = tuple((min(axis), None if is_open and axis[-2] != axis[-1] else max(axis)) for axis in zip(*shapes))
    return FlexibleShape(shapes[0], ranges=ranges)
