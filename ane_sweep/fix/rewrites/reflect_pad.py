"""Replace a reflecting pad by slices of one element and a concat for each padded axis."""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.patterns import numbers, slice_axis, text
from ane_sweep.fix.rewrite import ProgramRewrite, Site

_MOST = 8  # elements on one side: each is a slice

REWRITE = ProgramRewrite(
    order=10,
    kind="placement",
    help="pad with mode=reflect -> slices of the border, and one concat for each axis",
    condition="always: the same elements; sizes known, at most 8 elements on a side",
    bound=0.0,
    derivation="elements are copied",
    source="microsoft/onnxruntime issue 28022; reflecting pads begin with A15 and M2 (ANEForge floors)",
    evidence="14 -> 1 partitions and 43.5 ms before, bit-identical, reported there; here predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("pad"):
        sides = numbers(graph, node, "pad")
        if (
            text(graph, node, "mode", "constant") == "reflect"
            and sides
            and 0 <= min(sides) <= max(sides) <= _MOST
            and graph.static(node.read("x"), node.outputs[0])
            and _fits(graph.shape(node.reads("x")[0]), sides)
        ):
            yield Site(node, facts={"sides": sides})


def _fits(shape: tuple[int, ...], sides: list[int]) -> bool:
    """Return True if each padded axis is longer than its border, as a reflection must be; coremltools lets others pass."""
    padded = shape[len(shape) - len(sides) // 2 :]
    return all(size > max(pair) for size, pair in zip(padded, zip(sides[::2], sides[1::2])))


def apply(graph: Graph, site: Site) -> None:
    node, sides = site.node, site.facts["sides"]
    assert isinstance(sides, list)
    (made,) = node.reads("x")
    rank = len(graph.shape(made))
    for axis in range(rank - len(sides) // 2, rank):
        before, after = sides[2 * (axis - rank) :][:2]
        shape = list(graph.shape(made))
        size = shape[axis]
        low = [slice_axis(graph, node, made, axis, place, place + 1) for place in range(before, 0, -1)]
        high = [slice_axis(graph, node, made, axis, size - 2 - place, size - 1 - place) for place in range(after)]
        if low or high:
            shape[axis] += before + after
            made = Builder(graph, node).op(
                "concat", {"values": [*low, made, *high], "axis": axis, "interleave": False}, shape
            )
    graph.replace(node.outputs[0], made)
