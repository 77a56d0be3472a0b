"""Weights under other shapes: plain ones and compressed ones, whose numbers are shared, not copied."""

from copy import deepcopy

from ane_sweep.fix import values
from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.mil.element_types import string_value, tensor_type

_FORMS = ("constexpr_lut_to_dense", "constexpr_blockwise_shift_scale")
_OWN_AXES = ("indices", "data", "scale", "offset")  # parameters with the weight's axes, or blocks along these


def extend_weight(graph: Graph, build: Builder, name: str) -> str:
    """Return a weight (out, in) as (out, in, 1, 1). Raises ValueError for a compressed form that is not handled here."""
    maker = graph.maker(name)
    if maker is None or maker.type == "const":
        return build.view(name, (*graph.shape(name), 1, 1))
    if maker.type not in _FORMS or not maker.proto.inputs:
        raise ValueError(f"the weight `{name}` is made by {maker.type} in a form whose shape is fixed")
    proto, made = deepcopy(maker.proto), graph.fresh_name(f"{name}_extended")
    proto.attributes["name"].CopyFrom(string_value(made))
    proto.outputs[0].name = made
    proto.outputs[0].type.CopyFrom(values.make_type(graph.dtype(name), (*graph.shape(name), 1, 1)))
    for parameter, argument in proto.inputs.items():
        if len(argument.arguments) != 1 or argument.arguments[0].name:
            raise ValueError(f"the weight `{name}` is compressed twice")
        value = argument.arguments[0].value
        kind = tensor_type(value.type)
        shape = tuple(size or 0 for size in kind.shape) if kind is not None else ()
        if parameter == "lut":  # (blocks, blocks, entries, vector)
            value.CopyFrom(values.view_value(value, (*shape[:2], 1, 1, *shape[2:])))
        elif parameter in _OWN_AXES:
            value.CopyFrom(values.view_value(value, (*shape, 1, 1)))
    graph.add(proto, build.place)
    return made
