"""Parts of patterns that rewrites share."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TypeVar

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.values import make_type
from ane_sweep.mil.element_types import string_value

T = TypeVar("T")


def check_again(found: T | None, why: str = "an earlier place changed it") -> T:
    """Return what was found at a place once more, when the place is rewritten. Raises ValueError if it is there no more."""
    if found is None:
        raise ValueError(why)
    return found


def number(graph: Graph, node: Node, parameter: str, default: float | None = None) -> float | None:
    """Return a parameter's constant if it is one number, else None; `default` if the parameter is absent."""
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


def only_maker(graph: Graph, name: str | None) -> Node | None:
    """Return the op that makes a value, if the value has one reader only."""
    return graph.maker(name) if name is not None and graph.only_user(name) is not None else None


def is_half(graph: Graph, *names: str | None) -> bool:
    """Return True if all of these are fp16 tensors whose sizes are known."""
    return all(name is not None and graph.static(name) and graph.dtype(name) == "fp16" for name in names)


def is_number(graph: Graph, name: str | None, *wanted: float) -> bool:
    """Return True if a value is a constant, all of one number, that is near a wanted one (as near as fp16 numbers are)."""
    value = graph.value(name)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or not value.size:
        return False
    first = value.reshape(-1)[0].item()
    return any(abs(first - one) <= 2**-10 * abs(one) for one in wanted) and bool((value == value.reshape(-1)[0]).all())


def read_log(graph: Graph, node: Node) -> str | None:
    """Return the operand of a plain logarithm, whose epsilon counts for nothing; None for another op."""
    epsilon = number(graph, node, "epsilon", 0.0) if node.type == "log" else None
    return node.read("x") if epsilon is not None and epsilon < 1e-30 else None


def is_shifted_by_maximum(graph: Graph, x: str | None) -> bool:
    """Return True for x - max(x), whose exponential cannot overflow."""
    maker = graph.maker(x)
    largest = graph.maker(maker.read("y")) if maker is not None and maker.type == "sub" else None
    if largest is not None and largest.type == "maximum":
        largest = graph.maker(largest.read("x"))
    return largest is not None and largest.type == "reduce_max"


def read_log_sum_exp(graph: Graph, node: Node | None) -> tuple[str, list[int], bool] | None:
    """Return (x, axes, keep_dims) if an op makes log(sum(exp(x))) of an fp16 x that is not shifted by its maximum."""
    if node is None or node.type not in ("reduce_log_sum_exp", "log"):
        return None
    total, x = node, node.read("x")
    if node.type == "log":
        found = only_maker(graph, read_log(graph, node))
        inner = only_maker(graph, found.read("x")) if found is not None and found.type == "reduce_sum" else None
        if found is None or inner is None or inner.type != "exp":
            return None
        total, x = found, inner.read("x")
    if x is None or not is_half(graph, x, node.outputs[0]) or is_shifted_by_maximum(graph, x):
        return None
    rank, keep = len(graph.shape(x)), number(graph, total, "keep_dims", 0.0)
    axes = numbers(graph, total, "axes") if "axes" in total.proto.inputs else list(range(rank))
    over = sorted(axis % rank for axis in axes or [])
    is_sum = any(graph.shape(x)[axis] > 1 for axis in over)
    return (x, over, bool(keep)) if is_sum and keep is not None else None


def add_shifted_sum(build: Builder, x: str, axes: list[int]) -> tuple[str, str, str]:
    """Add the ops of max(x), x - max(x) and log(sum(exp(x - max(x)))) over some axes and return their outputs.

    The maximum is kept above -infinity, so that a row of nothing else has the logarithm -infinity, not NaN.
    """
    shape = build.graph.shape(x)
    short = [1 if axis in axes else size for axis, size in enumerate(shape)]
    largest = build.op("reduce_max", {"x": x, "axes": axes, "keep_dims": True}, short)
    largest = build.op("maximum", {"x": largest, "y": -65504.0}, short)
    shifted = build.op("sub", {"x": x, "y": largest}, shape)
    grown = build.op("exp", {"x": shifted}, shape)
    total = build.op("reduce_sum", {"x": grown, "axes": axes, "keep_dims": True}, short)
    return largest, shifted, build.op("log", {"x": total}, short)


def measure_patch(graph: Graph, node: Node) -> list[int] | None:
    """Return the sizes of a conv's kernel if the kernels lie side by side and cover the input, else None."""
    weight, strides = node.read("weight"), numbers(graph, node, "strides")
    if not graph.static(node.read("x"), weight, node.outputs[0]) or graph.message(weight) is None:
        return None
    size, space = list(graph.shape(str(weight))[2:]), graph.shape(str(node.read("x")))[2:]
    is_plain = (
        strides == size
        and not any(one % step for one, step in zip(space, size))
        and number(graph, node, "groups", 1) == 1
        and all(one == 1 for one in numbers(graph, node, "dilations") or [1])
        and graph.shape(node.outputs[0])[2:] == tuple(one // step for one, step in zip(space, size))
        and (text(graph, node, "pad_type", "valid") != "custom" or not any(numbers(graph, node, "pad") or [0]))
    )
    return size if is_plain else None


def copy_op(graph: Graph, at: Node, node: Node, given: Mapping[str, Sequence[str]], dtype: str) -> str:
    """Add a copy of an op with one output before the op `at`, with other values for the parameters in `given`, which makes
    numbers of another element type. Return its name.
    """
    proto = deepcopy(node.proto)
    made = graph.fresh_name(f"{node.outputs[0]}_{dtype}")
    for parameter, names in given.items():
        for binding, name in zip(proto.inputs[parameter].arguments, names):
            binding.name = name
    proto.attributes["name"].CopyFrom(string_value(made))
    proto.outputs[0].name = made
    proto.outputs[0].type.CopyFrom(make_type(dtype, graph.shape(node.outputs[0])))
    graph.add(proto, at)
    return made


def prove_with(graph: Graph, nodes: Iterable[Node]) -> None:
    """Let the proof of this place run ops that stay, as others read them, together with those that go: the replacement
    reads the values from which these ops compute.
    """
    graph.journal.removed += [node for node in nodes if node.is_alive]
