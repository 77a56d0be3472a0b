"""Layouts in a graph: which values are views of others, values made as views, and ops moved to another layout.

A rewrite that moves an op to the channels-first layout asks `see` for its input there, and shows the result as `see` of
the way back. Views that undo each other never come to be: `see` looks through those that are there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ane_sweep.fix.build import Builder, Given
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import number, numbers
from ane_sweep.fix.views import AxisView, Shape, Step

VIEWS = ("reshape", "transpose", "expand_dims", "squeeze")
UNARY = (
    "relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "leaky_relu", "clip", "sigmoid_hard", "elu", "softplus", "softsign",
    "erf", "exp", "log", "sqrt", "rsqrt", "inverse", "abs", "sign", "square", "sin", "cos", "cast", "identity", "round", "floor",
    "ceil", "threshold", "thresholded_relu", "scaled_tanh", "linear_activation", "logical_not",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "real_div", "pow", "maximum", "minimum", "select", "equal", "not_equal", "greater", "greater_equal",
    "less", "less_equal", "logical_and", "logical_or",
)  # fmt: skip
REDUCTIONS = ("reduce_mean", "reduce_sum", "reduce_max", "reduce_min", "reduce_sum_square", "reduce_l2_norm")
_OPERANDS = ("x", "y", "cond", "a", "b", "values")


class MovedConstants(dict[tuple[str, AxisView], str]):
    """MovedConstants that were made in another layout, by the constant and the view."""


def channels_first(shape: Shape) -> AxisView:
    """Return the view of (..., C) as (B, C, 1, S), or of (B, H, W, C) as (B, C, H, W)."""
    batch, channels = shape[0] if len(shape) > 2 else 1, shape[-1]
    inner = shape[1:-1] if len(shape) == 4 else (1, prod(shape) // (batch * channels))
    last = AxisView.reshape(shape, (batch, *inner, channels))
    made = last.then(AxisView.transpose(last.shape, (0, 3, 1, 2)))
    assert made is not None
    return made


def read_view(graph: Graph, node: Node | None) -> AxisView | None:
    """Return the view that an op makes of its input, or None for another op or unknown sizes."""
    if node is None or node.type not in VIEWS:
        return None
    if not node.view:
        node.view = (_read_view(graph, node),)
    return node.view[0]


def _read_view(graph: Graph, node: Node) -> AxisView | None:
    if not graph.static(node.read("x"), node.outputs[0]):
        return None
    source, shape = graph.shape(node.reads("x")[0]), graph.shape(node.outputs[0])
    if 0 in source:
        return None
    perm = numbers(graph, node, "perm")
    if node.type == "transpose":
        return AxisView.transpose(source, perm) if perm is not None else None
    return AxisView.reshape(source, shape)


def trace(graph: Graph, name: str) -> Iterator[tuple[str, AxisView]]:
    """Yield a value, the value that it is a view of, and so on, each with the view from there to the first."""
    shape = graph.shape(name)
    whole: AxisView | None = AxisView.reshape(shape, shape)
    while whole is not None:
        yield name, whole
        maker = graph.maker(name)
        step = read_view(graph, maker)
        if maker is None or step is None:
            return
        name, whole = maker.reads("x")[0], step.then(whole)


def find_root(graph: Graph, name: str) -> tuple[str, AxisView]:
    """Return the value that a value is a view of and that is no view itself."""
    return list(trace(graph, name))[-1]


def see(graph: Graph, name: str, view: AxisView) -> str:
    """Return a view of a value: its root, a view that is there already, or new ops just after the op that makes the root.

    Raises ValueError if the view needs more than five axes.
    """
    best: tuple[int, str, list[Step]] | None = None
    for one, way in trace(graph, name):
        full = way.then(view)
        steps = full.steps if full is not None else None
        if steps is not None:
            cost = count_missing(graph, one, steps)
            if best is None or cost <= best[0]:
                best = cost, one, steps
    if best is None:
        raise ValueError(f"`{name}` cannot be seen as {view.shape} with five axes")
    return _take_steps(graph, *best[1:])


def see_from(graph: Graph, root: str, view: AxisView) -> str:
    """Return a view of a value, made from this value itself. Raises ValueError if the view needs more than five axes."""
    steps = view.steps
    if steps is None:
        raise ValueError(f"`{root}` cannot be seen as {view.shape} with five axes")
    return _take_steps(graph, root, steps)


def _take_steps(graph: Graph, name: str, steps: list[Step]) -> str:
    for step in steps:
        name = find_step(graph, name, step) or _make_step(graph, name, step)
    return name


def count_missing(graph: Graph, name: str, steps: list[Step]) -> int:
    """Return the cost of the steps that are not there yet: 1 for a reshape, 8 for a transpose."""
    for place, step in enumerate(steps):
        found = find_step(graph, name, step)
        if found is None:
            return sum(8 if kind == "transpose" else 1 for kind, _ in steps[place:])
        name = found
    return 0


def find_step(graph: Graph, name: str, step: Step) -> str | None:
    """Return the value that a reshape or a transpose just after the op that makes a value gives, or None."""
    source = graph.shape(name)
    wanted = AxisView.reshape(source, step[1]) if step[0] == "reshape" else AxisView.transpose(source, step[1])
    found = {node for node in graph.users(name) if node.read("x") == name and read_view(graph, node) == wanted}
    return next((node.outputs[0] for node in _first_readers(graph, name) if node in found), None) if found else None


def _first_readers(graph: Graph, name: str) -> Iterator[Node]:
    """Yield the views and constants that directly follow the op that makes a value: every reader may stand after them."""
    maker = graph.maker(name)
    node = maker.next if maker is not None else next(iter(graph))
    while node.type == "const" or node.type in VIEWS:
        yield node
        node = node.next


def _build_after(graph: Graph, node: Node) -> Builder:
    """Return a builder whose ops go after an op, and carry its scope."""
    build = Builder(graph, node)
    build.place = node.next
    return build


def _make_step(graph: Graph, name: str, step: Step) -> str:
    kind, given = step
    maker, shape = graph.maker(name), graph.shape(name)
    build = _build_after(graph, maker) if maker is not None else Builder(graph, graph.first())
    if kind == "reshape":
        return build.op("reshape", {"x": name, "shape": list(given)}, given)
    return build.op("transpose", {"x": name, "perm": list(given)}, [shape[axis] for axis in given])


def copy_inputs(graph: Graph, node: Node, **changes: Given) -> dict[str, Given]:
    """Return the inputs of an op for a new op, with some in place of its own."""
    found: dict[str, Given] = {}
    for parameter in node.proto.inputs:
        names, value = node.reads(parameter), graph.parameter(node, parameter)
        if names:
            found[parameter] = names if parameter == "values" else names[0]
        elif value is not None:
            found[parameter] = value
    return found | changes


@dataclass(frozen=True)
class Move:
    """One op in another layout: `views` go from the new outputs to the op's own, `operands` from operands to new ones."""

    views: Sequence[AxisView]
    axes: Mapping[str, Given]
    operands: Mapping[str, AxisView]


def plan_move(graph: Graph, node: Node, lead: str, view: AxisView) -> Move | None:
    """Return how an op can be computed where its input `lead` lies in another layout, from which `view` goes to `lead`.

    None if the op mixes elements along axes that the other layout does not have.
    """
    names = [name for key in _OPERANDS for name in node.reads(key)]
    if not graph.static(*names, *node.outputs) or any(0 in graph.shape(name) for name in node.outputs):
        return None
    if node.type in UNARY:
        return Move([view], {}, {})
    if node.type in BINARY:
        return _plan_broadcast(graph, node, names, lead, view)
    plans: dict[str, Callable[[Graph, Node, AxisView], Move | None]] = {
        "softmax": _plan_softmax, "layer_norm": _plan_norm, "concat": _plan_concat, "split": _plan_split,
        "slice_by_index": _plan_slice,
    }  # fmt: skip
    plan = _plan_reduction if node.type in REDUCTIONS else plans.get(node.type)
    return plan(graph, node, view) if plan is not None else None


def _plan_broadcast(graph: Graph, node: Node, names: list[str], lead: str, view: AxisView) -> Move | None:
    if graph.shape(lead) != graph.shape(node.outputs[0]):
        return None
    ways = {name: view.for_operand(graph.shape(name)) for name in names if graph.shape(name)}
    found = {name: way for name, way in ways.items() if way is not None}
    return Move([view], {}, found) if len(found) == len(ways) else None


def _plan_softmax(graph: Graph, node: Node, view: AxisView) -> Move | None:
    axis = number(graph, node, "axis", -1)
    place = view.axis_of(int(axis)) if axis is not None else None
    return Move([view], {"axis": place}, {}) if place is not None else None


def _plan_norm(graph: Graph, node: Node, view: AxisView) -> Move | None:
    axes = numbers(graph, node, "axes")
    place = view.axis_of(axes[0]) if axes is not None and len(axes) == 1 else None
    return Move([view], {"axes": [place]}, {}) if place is not None else None


def _plan_reduction(graph: Graph, node: Node, view: AxisView) -> Move | None:
    axes = numbers(graph, node, "axes")
    if axes is None or len(axes) != 1 or not number(graph, node, "keep_dims", 0):
        return None
    place, made = view.axis_of(axes[0] % len(view.shape)), view.resize(axes[0] % len(view.shape), 1)
    return Move([made], {"axes": [place]}, {}) if place is not None and made is not None else None


def _plan_concat(graph: Graph, node: Node, view: AxisView) -> Move | None:
    axis = number(graph, node, "axis")
    if axis is None or number(graph, node, "interleave", 0):
        return None
    axis = int(axis) % len(view.shape)
    ways = {name: view.resize(axis, graph.shape(name)[axis]) for name in node.reads("values")}
    place, made = view.axis_of(axis), view.resize(axis, graph.shape(node.outputs[0])[axis])
    found = {name: way.inverse() for name, way in ways.items() if way is not None}
    if place is None or made is None or len(found) < len(ways):
        return None
    return Move([made], {"axis": place}, found)


def _plan_split(graph: Graph, node: Node, view: AxisView) -> Move | None:
    axis = number(graph, node, "axis")
    if axis is None:
        return None
    axis = int(axis) % len(view.shape)
    place, ways = view.axis_of(axis), [view.resize(axis, graph.shape(name)[axis]) for name in node.outputs]
    found = [way for way in ways if way is not None]
    return Move(found, {"axis": place}, {}) if place is not None and len(found) == len(ways) else None


def _plan_slice(graph: Graph, node: Node, view: AxisView) -> Move | None:
    """Plan a slice of one axis with stride 1."""
    begin, shape, made = numbers(graph, node, "begin"), view.shape, graph.shape(node.outputs[0])
    stride, squeezed = numbers(graph, node, "stride"), numbers(graph, node, "squeeze_mask")
    cut = [axis for axis in range(len(shape)) if len(made) == len(shape) and shape[axis] != made[axis]]
    if begin is None or len(cut) != 1 or set(stride or ()) - {1} or any(squeezed or ()):
        return None
    open_ends = numbers(graph, node, "begin_mask") or [0] * len(shape)
    axis = cut[0]
    place, way = view.axis_of(axis), view.resize(axis, made[axis])
    if place is None or way is None:
        return None
    start = 0 if open_ends[axis] else begin[axis] % shape[axis]
    first, last = [0] * len(view.source), list(view.source)
    first[place], last[place] = start, start + made[axis]
    return Move([way], {"begin": first, "end": last}, {})


def apply_move(graph: Graph, node: Node, lead: str, view: AxisView, made: MovedConstants) -> None:
    """Compute an op in the layout of `lead` from which `view` goes to `lead`, and replace its outputs by views of that.

    Raises ValueError if the op cannot be moved.
    """
    move, build = plan_move(graph, node, lead, view), Builder(graph, node)
    if move is None:
        raise ValueError("the op cannot be moved to that layout")
    found = make_move(graph, node, move, build, {lead: see(graph, lead, view.inverse())}, made)
    for old, new, way in zip(node.outputs, found, move.views, strict=True):
        if graph.maker(old) is not None:  # an output that nothing reads goes with the op
            graph.replace(old, see(graph, new, way))


def apply_moves(graph: Graph, nodes: Sequence[Node], x: str, view: AxisView, made: MovedConstants) -> None:
    """Compute a chain of ops on `x` in the layout from which `view` goes to `x`, and replace the last output.

    Raises ValueError if one of the ops cannot be moved.
    """
    operands, ways = {x: see(graph, x, view.inverse())}, {x: view}
    for node in nodes:
        leads = [name for key in _OPERANDS for name in node.reads(key) if name in ways]
        plans = [plan_move(graph, node, lead, ways[lead]) for lead in leads]
        move = next((plan for plan in plans if plan is not None), None)
        if move is None:
            raise ValueError(f"`{node.type}` of the chain cannot be moved to that layout")
        found = make_move(graph, node, move, Builder(graph, node), operands, made)
        operands |= dict(zip(node.outputs, found, strict=True))
        ways |= dict(zip(node.outputs, move.views, strict=True))
    last = nodes[-1].outputs[0]
    graph.replace(last, see(graph, operands[last], ways[last]))


def make_move(
    graph: Graph, node: Node, move: Move, build: Builder, operands: Mapping[str, str], made: MovedConstants
) -> list[str]:
    """Add a moved op and return its outputs. `operands` are the inputs that lie in the layout already."""

    def place(name: str) -> str:
        if name in operands:
            return operands[name]
        if name not in move.operands:
            return name
        if graph.is_constant(name):
            return _place_constant(graph, build, name, move.operands[name], made)
        return see(graph, name, move.operands[name])

    inputs = copy_inputs(graph, node, **move.axes)
    for key in _OPERANDS:
        if key in inputs and (names := node.reads(key)):
            placed = [place(name) for name in names]
            inputs[key] = placed if key == "values" else placed[0]
    if node.type == "slice_by_index":
        inputs = {key: inputs[key] for key in ("x", "begin", "end")}
    kinds = [graph.dtype(name) for name in node.outputs]
    return build.ops(node.type, inputs, [(way.source, kind) for way, kind in zip(move.views, kinds, strict=True)])


def _place_constant(graph: Graph, build: Builder, name: str, view: AxisView, made: MovedConstants) -> str:
    """Return a constant in another layout: under another shape, or as a new weight. Raises ValueError for a compressed one."""
    if view.keeps_order and view.source == view.shape:
        return name
    if (name, view) not in made:
        value, steps = graph.value(name), view.steps
        if not isinstance(value, np.ndarray) or steps is None:
            raise ValueError(f"`{name}` is a compressed weight, which has no other layout")
        maker = graph.maker(name)
        place = _build_after(graph, maker) if maker is not None else build
        if view.keeps_order:
            made[name, view] = place.view(name, view.shape)
        else:
            for kind, given in steps:
                value = value.reshape(given) if kind == "reshape" else value.transpose(given)
            made[name, view] = place.const(np.ascontiguousarray(value), "moved")
    return made[name, view]
