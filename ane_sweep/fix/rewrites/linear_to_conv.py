"""Compute linear, and matmul with a constant weight, as a 1x1 convolution of (B, C, 1, S)."""

from collections.abc import Iterator
from copy import deepcopy

import numpy as np

from ane_sweep.fix import values
from ane_sweep.fix.build import Builder, Given
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.layout import channels_first, find_root, see
from ane_sweep.fix.patterns import number, other_input
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.values import Text
from ane_sweep.fix.views import AxisView
from ane_sweep.mil.element_types import string_value, tensor_type

REWRITE = ProgramRewrite(
    order=40,
    kind="placement",
    help="linear, and matmul with a constant weight (and the bias after it) -> 1x1 conv on (B, C, 1, S)",
    condition="sizes known; a weight of two axes, plain, palettized or quantized in blocks; not the last op of the program, "
    "whose result would be transposed in place of its input",
    bound=1e-5,
    derivation="n products summed in another order: sqrt(n) * 2^-24 of the sum of their sizes, 7.6e-6 for n = 16,384",
    source="apple/ml-ane-transformers, principles 1 and 4 (Deploying Transformers on the Apple Neural Engine, 2022)",
    evidence="DistilBERT 56 -> 4.4 ms on an M1 with attention head by head (Apple, 2022); by itself predicted only",
    then=("layer_norm_channels", "cancel_layout", "merge_views"),
)
_FORMS = ("constexpr_lut_to_dense", "constexpr_blockwise_shift_scale")  # of compressed weights whose shape is extended
_OWN_AXES = ("indices", "data", "scale", "offset")  # parameters with the weight's axes, or blocks along these
_CONV: dict[str, Given] = {
    "strides": [1, 1], "pad_type": Text("valid"), "pad": [0, 0, 0, 0], "dilations": [1, 1], "groups": 1,
}  # fmt: skip


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("linear", "matmul"):
        x, weight = node.read("x"), node.read("weight" if node.type == "linear" else "y")
        if (
            graph.is_output(node.outputs[0])
            or x is None
            or graph.is_constant(x)
            or not graph.static(x, weight, node.outputs[0])
        ):
            continue
        shape = graph.shape(x)
        if len(shape) < 2 or 0 in shape or len(graph.shape(str(weight))) != 2 or not graph.is_constant(weight):
            continue
        if node.type == "linear":
            yield Site(node, facts={"turned": False})
        elif not number(graph, node, "transpose_x", 0):
            turned = not number(graph, node, "transpose_y", 0)
            if not turned or isinstance(graph.value(weight), np.ndarray):
                yield Site(node, facts={"turned": turned})


def apply(graph: Graph, site: Site) -> None:
    node, (last, bias) = site.node, _find_bias(graph, site.node)
    x, build = node.reads("x")[0], Builder(graph, last)
    inward, outward = _find_layout(graph, node, x)
    inputs: dict[str, Given] = {"x": see(graph, x, inward), "weight": _place_weight(graph, node, build, site), **_CONV}
    if bias is not None:
        shape = graph.shape(bias)
        inputs["bias"] = bias if len(shape) == 1 else build.view(bias, [shape[-1]])
    made = build.op("conv", inputs, outward.source, graph.dtype(node.outputs[0]))
    graph.replace(last.outputs[0], see(graph, made, outward))


def _find_layout(graph: Graph, node: Node, x: str) -> tuple[AxisView, AxisView]:
    """Return the views from the input to (B, C, 1, S), and back to the output; B is that of the value before a flattening."""
    shape, made = graph.shape(x), graph.shape(node.outputs[0])
    root, way = find_root(graph, x)
    whole = graph.shape(root)
    if len(shape) == 2 and len(whole) == 3 and way.keeps_order and whole[-1] == shape[-1]:
        shape = whole
    inward = AxisView.reshape(graph.shape(x), shape).then(channels_first(shape))
    outward = channels_first((*shape[:-1], made[-1])).inverse().then(AxisView.reshape((*shape[:-1], made[-1]), made))
    assert inward is not None and outward is not None
    return inward, outward


def _place_weight(graph: Graph, node: Node, build: Builder, site: Site) -> str:
    name = node.reads("weight" if node.type == "linear" else "y")[0]
    if not site.facts["turned"]:
        return _extend_weight(graph, build, name)
    value = graph.value(name)
    assert isinstance(value, np.ndarray)
    return build.const(np.ascontiguousarray(value.T)[..., None, None], "weight")


def _extend_weight(graph: Graph, build: Builder, name: str) -> str:
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


def _find_bias(graph: Graph, node: Node) -> tuple[Node, str | None]:
    """Return the op whose output the convolution makes, and the bias: that of linear, or of an add after a matmul."""
    if node.type == "linear":
        return node, node.read("bias")
    made = node.outputs[0]
    user, size = graph.only_user(made), graph.shape(made)[-1]
    bias = other_input(user, made) if user is not None and user.type == "add" else None
    if user is None or bias is None or graph.message(bias) is None or graph.shape(bias)[-1:] != (size,):
        return node, None
    is_bias = all(one == 1 for one in graph.shape(bias)[:-1]) and graph.shape(user.outputs[0]) == graph.shape(made)
    return (user, bias) if is_bias else (node, None)
