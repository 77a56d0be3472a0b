"""Windows that slide over height and width, as convolutions and pools have them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import numbers, text

Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Sizes of a window by axis, height first; `padding` is before and after each axis."""

    sizes: Pair
    strides: Pair
    dilations: Pair
    padding: tuple[Pair, Pair]


def read_window(graph: Graph, node: Node, sizes: Sequence[int]) -> Window | None:
    """Return the window of an op over two axes, "same" padding in numbers, or None if a part of it is not known."""
    if len(sizes) != 2 or not graph.static(node.read("x"), node.outputs[0]):
        return None
    kind, pad = text(graph, node, "pad_type", "valid"), [0, 0, 0, 0]
    strides, dilations = (
        (numbers(graph, node, parameter) or []) if parameter in node.proto.inputs else [1, 1]
        for parameter in ("strides", "dilations")
    )
    if len(strides) != 2 or len(dilations) != 2 or kind is None:
        return None
    if kind == "custom":
        pad = numbers(graph, node, "pad") or []
    elif kind != "valid":
        pad = []
        for length, size, step, apart in zip(graph.shape(str(node.read("x")))[2:], sizes, strides, dilations):
            total = max(0, (math.ceil(length / step) - 1) * step + (size - 1) * apart + 1 - length)
            pad += [total // 2, total - total // 2][:: -1 if kind == "same_lower" else 1]
    if len(pad) != 4:
        return None
    (high, wide), (down, right), (apart, beside) = sizes, strides, dilations
    return Window((high, wide), (down, right), (apart, beside), ((pad[0], pad[1]), (pad[2], pad[3])))


def count_steps(window: Window, axis: int, length: int) -> int:
    """Return the size of an output along an axis of this length, padded."""
    return (length - (window.sizes[axis] - 1) * window.dilations[axis] - 1) // window.strides[axis] + 1
