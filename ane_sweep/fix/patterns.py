"""Parts of patterns that rewrites share: constants of one number, and chains of ops."""

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node


def number(graph: Graph, node: Node, parameter: str, default: float | None = None) -> float | None:
    """Return the one number given as a constant for a parameter; `default` if the parameter is absent, None if there is
    no such number.
    """
    if parameter not in node.proto.inputs:
        return default
    value = graph.parameter(node, parameter)
    return value.reshape(-1)[0].item() if isinstance(value, np.ndarray) and value.size == 1 else None


def numbers(graph: Graph, node: Node, parameter: str) -> list[int] | None:
    """Return the whole numbers given as a constant for a parameter, or None."""
    value = graph.parameter(node, parameter)
    return (
        [int(one) for one in value.reshape(-1)] if isinstance(value, np.ndarray) and value.dtype.kind in "iub" else None
    )


def text(graph: Graph, node: Node, parameter: str, default: str) -> str | None:
    """Return the text given as a constant for a parameter, `default` if the parameter is absent, or None."""
    if parameter not in node.proto.inputs:
        return default
    value = graph.parameter(node, parameter)
    return value if isinstance(value, str) else None


def follow_chain(graph: Graph, node: Node, *types: str) -> list[Node] | None:
    """Return the ops that follow an op, of these types in this order, if each value between them has one reader only."""
    found: list[Node] = []
    for kind in types:
        user = graph.only_user(node.outputs[0]) if len(node.outputs) == 1 else None
        if user is None or user.type != kind:
            return None
        found.append(user)
        node = user
    return found


def other_input(node: Node, name: str) -> str | None:
    """Return the second operand of an op of `x` and `y`, if `name` is the first, either way round."""
    x, y = node.read("x"), node.read("y")
    return y if x == name and y != name else x if y == name and x != name else None


def slice_axis(graph: Graph, at: Node, x: str, axis: int, start: int, stop: int) -> str:
    """Add the slice [start, stop) of one axis of `x` before the op `at`, and return its name."""
    shape = list(graph.shape(x))
    begin, end = [0] * len(shape), list(shape)
    begin[axis], end[axis] = start, stop
    shape[axis] = stop - start
    return Builder(graph, at).op("slice_by_index", {"x": x, "begin": begin, "end": end}, shape)
