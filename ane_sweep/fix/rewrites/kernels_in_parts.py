"""Give a convolution whose kernel is longer than the Neural Engine takes a shorter kernel over several channels for one: each
holds the input from another part of the kernel on.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from ane_sweep.fix.build import Builder, Given
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import number
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.values import Text
from ane_sweep.fix.windows import Window, count_steps, read_window

_MOST = (31, 13)  # height, and width up to A16 and M3; later chips take 15

REWRITE = ProgramRewrite(
    order=13,
    kind="placement",
    help="conv with a kernel higher than 31 or wider than 13 -> slices, concat and a conv with parts of the kernel",
    condition="over height and width of known sizes; a const weight that is not compressed, one group; at most 8 parts",
    bound=1e-5,
    derivation="the same products in another order: n roundings of 2^-24 add up to sqrt(n) of them, 7.6e-6 for n = 16,384",
    source="751K study (M4: kernels of 31x1 and 1x15), ANEForge (M1: 13 wide); long kernels of audio nets",
    evidence="predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("conv"):
        window = _read(graph, node)
        if window is not None and 1 < _count_parts(window, 0) * _count_parts(window, 1) <= 8:
            yield Site(node)


def _read(graph: Graph, node: Node) -> Window | None:
    weight = node.read("weight")
    is_plain = graph.message(weight) is not None and number(graph, node, "groups", 1) == 1
    return read_window(graph, node, graph.shape(str(weight))[2:]) if is_plain else None


def _count_parts(window: Window, axis: int) -> int:
    return -(-window.sizes[axis] // _MOST[axis])


def apply(graph: Graph, site: Site) -> None:
    node, build, window = site.node, Builder(graph, site.node), _read(graph, site.node)
    weight = graph.value(node.read("weight"))
    if window is None or not isinstance(weight, np.ndarray):
        raise ValueError("its kernel has changed")
    counts = [_count_parts(window, axis) for axis in (0, 1)]
    sizes = [-(-size // count) for size, count in zip(window.sizes, counts)]  # of a part; the last ends with zeros
    spare = [size * count - whole for size, count, whole in zip(sizes, counts, window.sizes)]
    x, shape = str(node.read("x")), list(graph.shape(str(node.read("x"))))
    steps = [count_steps(window, axis, shape[2 + axis] + sum(window.padding[axis])) for axis in (0, 1)]
    sides = [(pair[0], pair[1] + more * apart) for pair, more, apart in zip(window.padding, spare, window.dilations)]
    if any(map(any, sides)):
        shape[2:] = [size + sum(pair) for size, pair in zip(shape[2:], sides)]
        zero = np.zeros((), np.float16 if graph.dtype(x) == "fp16" else np.float32)
        widths = [0, 0, 0, 0, *sides[0], *sides[1]]
        x = build.op("pad", {"x": x, "pad": widths, "mode": Text("constant"), "constant_val": zero}, shape)
    reach = [
        (count - 1) * stride + (size - 1) * apart + 1
        for count, stride, size, apart in zip(steps, window.strides, sizes, window.dilations)
    ]
    pieces = []
    for part in product(range(counts[0]), range(counts[1])):
        begin = [0, 0, *(index * size * apart for index, size, apart in zip(part, sizes, window.dilations))]
        end = [*shape[:2], *(start + length for start, length in zip(begin[2:], reach))]
        pieces.append(build.op("slice_by_index", {"x": x, "begin": begin, "end": end}, [*shape[:2], *reach]))
    wide = [shape[0], len(pieces) * shape[1], *reach]
    outputs, channels = weight.shape[:2]
    kernel = np.pad(weight, [(0, 0), (0, 0), (0, spare[0]), (0, spare[1])])
    kernel = kernel.reshape(outputs, channels, counts[0], sizes[0], counts[1], sizes[1]).transpose(0, 2, 4, 1, 3, 5)
    given: dict[str, Given] = {
        "x": build.op("concat", {"values": pieces, "axis": 1, "interleave": False}, wide),
        "weight": build.const(np.ascontiguousarray(kernel).reshape(outputs, wide[1], *sizes), "weight"),
        "pad_type": Text("valid"), "strides": list(window.strides), "dilations": list(window.dilations), "groups": 1,
    }  # fmt: skip
    if bias := node.read("bias"):
        given["bias"] = bias
    graph.replace(node.outputs[0], build.op("conv", given, graph.shape(node.outputs[0])))
