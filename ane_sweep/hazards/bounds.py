"""Bound a value by what the program alone tells: the least and largest number that it can have.

An op that no rule here knows has no bounds, and neither has an input. Bounds are of exact arithmetic.
"""

import math
from collections.abc import Callable

import numpy as np

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import is_shifted_by_maximum, number

Bounds = tuple[float, float]
OPEN: Bounds = (-math.inf, math.inf)
_DEPTH = 24  # ops that are followed back
_MOST_ELEMENTS = 1 << 16  # of a constant that is read
_SAME = {
    "cast", "expand_dims", "identity", "max_pool", "reduce_max", "reduce_mean", "reduce_min", "reshape", "reverse",
    "slice_by_index", "slice_by_size", "split", "squeeze", "tile", "transpose",
}  # fmt: skip
_FIXED: dict[str, Bounds] = {
    "sigmoid": (0.0, 1.0), "sigmoid_hard": (0.0, 1.0), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0), "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0), "erf": (-1.0, 1.0), "softsign": (-1.0, 1.0), "relu6": (0.0, 6.0), "sign": (-1.0, 1.0),
    "clamped_relu": OPEN,
}  # fmt: skip


def bound(graph: Graph, name: str | None, depth: int = _DEPTH) -> Bounds:
    """Return the least and the largest number that a value can have; infinite ones if the program does not tell."""
    node = graph.maker(name)
    if node is None or depth == 0:
        return OPEN
    if node.type == "const":
        return _bound_constant(graph, name)
    if node.type in _FIXED:
        return _FIXED[node.type]
    if node.type in _SAME:
        return bound(graph, node.read("x"), depth - 1)
    if node.type == "sub" and is_shifted_by_maximum(graph, name):
        return (-math.inf, 0.0)
    if node.type in ("concat", "select", "gather"):
        reads = {"concat": ("values",), "select": ("a", "b"), "gather": ("x",)}[node.type]
        parts = [bound(graph, one, depth - 1) for parameter in reads for one in node.reads(parameter)]
        return (min(low for low, _ in parts), max(high for _, high in parts)) if parts else OPEN
    if node.type in ("layer_norm", "clip"):
        return (_bound_layer_norm if node.type == "layer_norm" else _bound_clip)(graph, node, depth)
    if node.type in _UNARY:
        return _UNARY[node.type](bound(graph, node.read("x"), depth - 1))
    if node.type in _BINARY:
        x, y = (bound(graph, node.read(side), depth - 1) for side in "xy")
        if node.type == "mul" and node.read("x") == node.read("y"):
            return _square(x)
        return _BINARY[node.type](x, y)
    return OPEN


def largest(graph: Graph, name: str | None) -> float:
    """Return the largest magnitude that a value can have."""
    return max(map(abs, bound(graph, name)))


def _bound_constant(graph: Graph, name: str | None) -> Bounds:
    kind = graph.kind(name)
    if kind is None or kind.count > _MOST_ELEMENTS or not kind.count:
        return OPEN
    value = graph.value(name)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or np.isnan(value).any():
        return OPEN
    return float(value.min()), float(value.max())


def _bound_layer_norm(graph: Graph, node: Node, depth: int) -> Bounds:
    """Return bounds by the number of elements n: none of them can be further than sqrt(n) deviations from their mean."""
    axes, x = graph.parameter(node, "axes"), node.read("x")
    if not isinstance(axes, np.ndarray) or not graph.static(x):
        return OPEN
    count = math.prod(graph.shape(str(x))[int(axis)] for axis in axes.reshape(-1))
    scale = largest(graph, node.read("gamma")) if "gamma" in node.proto.inputs else 1.0
    shift = largest(graph, node.read("beta")) if "beta" in node.proto.inputs else 0.0
    most = math.sqrt(count) * scale + shift
    return -most, most


def _bound_clip(graph: Graph, node: Node, depth: int) -> Bounds:
    low, high = bound(graph, node.read("x"), depth - 1)
    least, most = number(graph, node, "alpha", -math.inf), number(graph, node, "beta", math.inf)
    return (low if least is None else max(low, least)), (high if most is None else min(high, most))


def _multiply(x: Bounds, y: Bounds) -> Bounds:
    ends = [0.0 if 0.0 in (a, b) else a * b for a in x for b in y]
    return min(ends), max(ends)


def _square(x: Bounds) -> Bounds:
    ends = (x[0] * x[0], x[1] * x[1])
    return (0.0 if x[0] <= 0.0 <= x[1] else min(ends)), max(ends)


def _exp(x: Bounds) -> Bounds:
    low, high = (math.exp(end) if end < 700 else math.inf for end in x)
    return low, high


def _softplus(x: Bounds) -> Bounds:
    low, high = (math.log1p(math.exp(end)) if end < 30 else end for end in x)
    return low, high


_UNARY: dict[str, Callable[[Bounds], Bounds]] = {
    "relu": lambda x: (max(x[0], 0.0), max(x[1], 0.0)),
    "abs": lambda x: (0.0 if x[0] <= 0.0 <= x[1] else min(map(abs, x)), max(map(abs, x))),
    "square": _square,
    "exp": _exp,
    "softplus": _softplus,
    "sqrt": lambda x: (math.sqrt(max(x[0], 0.0)), math.sqrt(max(x[1], 0.0))),
}
_BINARY: dict[str, Callable[[Bounds, Bounds], Bounds]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "mul": _multiply,
    "real_div": lambda x, y: OPEN if y[0] <= 0.0 <= y[1] else _multiply(x, (1 / y[1], 1 / y[0])),
    "maximum": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "minimum": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
}
