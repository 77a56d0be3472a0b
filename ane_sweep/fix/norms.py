"""Norms over the last axis that are written out in single ops: RMSNorm, and layer_norm as converters leave it unfused."""

from dataclasses import dataclass

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import number, numbers, other_input


@dataclass(frozen=True)
class Norm:
    """A norm of `x`: its ops in the program's order, the last of which is `last`.

    x * rsqrt(mean(x * x) + epsilon), or the same of x - mean(x); `last` multiplies by the weight if there is one.
    `centre` is the op x - mean(x), or None.
    """

    x: str
    nodes: list[Node]
    last: Node
    centre: Node | None
    epsilon: str
    gamma: str | None


def find_norm(graph: Graph, root: Node) -> Norm | None:
    """Return the norm whose root of the mean square an op takes, or None."""
    added = graph.maker(root.read("x"))
    if added is None or added.type != "add":
        return None
    epsilon = next((name for name in added.reads("y") + added.reads("x") if graph.is_constant(name)), None)
    mean = graph.maker(other_input(added, epsilon)) if epsilon is not None else None
    square = graph.maker(mean.read("x")) if mean is not None and mean.type == "reduce_mean" else None
    value = _squared(graph, square) if square is not None else None
    if mean is None or square is None or epsilon is None or value is None or not graph.static(value):
        return None
    rank, axes = len(graph.shape(value)), numbers(graph, mean, "axes")
    if axes not in ([-1], [rank - 1]) or not number(graph, mean, "keep_dims", 0):
        return None
    inner = [square, mean, added, root]
    if any(graph.only_user(node.outputs[0]) is None for node in inner[:3]):
        return None
    scaled = _scaled(graph, root, value)
    if scaled is None:
        return None
    centre = _centre(graph, graph.maker(value))
    makers = (graph.maker(centre.read("y")), centre) if centre is not None else ()
    before = [node for node in makers if node is not None]
    x = str(centre.read("x")) if centre is not None else value
    weighted = graph.only_user(scaled.outputs[0])
    gamma = other_input(weighted, scaled.outputs[0]) if weighted is not None and weighted.type == "mul" else None
    if (
        weighted is None
        or gamma is None
        or graph.message(gamma) is None
        or graph.shape(gamma) != graph.shape(value)[-1:]
    ):
        return Norm(x, [*before, *inner, scaled], scaled, centre, epsilon, None)
    return Norm(x, [*before, *inner, scaled, weighted], weighted, centre, epsilon, gamma)


def _squared(graph: Graph, node: Node) -> str | None:
    """Return x for x * x, x ** 2 and square(x)."""
    x, y = node.read("x"), node.read("y")
    is_square = node.type == "square" or (node.type == "mul" and x == y)
    return x if is_square or (node.type == "pow" and number(graph, node, "y") == 2) else None


def _scaled(graph: Graph, root: Node, value: str) -> Node | None:
    """Return the op value * rsqrt, or value / sqrt."""
    user = graph.only_user(root.outputs[0])
    if user is None:
        return None
    if root.type == "rsqrt":
        return user if user.type == "mul" and other_input(user, root.outputs[0]) == value else None
    return user if user.type == "real_div" and user.read("x") == value and user.read("y") == root.outputs[0] else None


def _centre(graph: Graph, node: Node | None) -> Node | None:
    """Return the op x - mean(x) over the last axis, or None."""
    mean = graph.maker(node.read("y")) if node is not None and node.type == "sub" else None
    if node is None or mean is None or mean.type != "reduce_mean" or mean.read("x") != node.read("x"):
        return None
    rank = len(graph.shape(node.outputs[0]))
    is_last = numbers(graph, mean, "axes") in ([-1], [rank - 1]) and number(graph, mean, "keep_dims", 0)
    return node if is_last and graph.only_user(mean.outputs[0]) is not None else None
