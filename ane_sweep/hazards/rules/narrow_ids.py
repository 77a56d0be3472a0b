"""Find indices that were fp16 or int16 numbers before: fp16 has no odd whole numbers above 2,048, int16 none above 32,767."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import number
from ane_sweep.hazards.bounds import bound
from ane_sweep.hazards.rule import HazardRule, Place, Scene, place_node

RULE = HazardRule(
    order=40,
    kind="numerics",
    condition="a lookup into more than 2,048 rows whose indices come from fp16 numbers, or into more than 32,767 by int16",
    effect="fp16 rounds ids above 2,048 to even ones, above 4,096 to multiples of 4; int16 makes other ids of those above 32,767",
    source="the ranges of fp16 and int16; coremltools#2416 (whole numbers in fp16), #2365; #2222 (int16 of any range)",
    confidence="high",
    do="declare the input as int32, and look ids up as they come: squeeze what is found",
)
_MOST = {"fp16": 2048, "int16": 32767}
_LOOKUPS = ("gather", "gather_along_axis", "gather_nd")
_BACK = 12


def find(scene: Scene) -> Iterator[Place]:
    for node in scene.graph.nodes(*_LOOKUPS):
        rows = _count_rows(scene.graph, node)
        for dtype, most in _MOST.items():
            made = _find_narrow(scene.graph, node.read("indices"), dtype, _BACK) if rows > most else None
            if made is not None and bound(scene.graph, made)[1] > most:
                yield place_node(node, f"{rows:,} rows, indices from the {dtype} value {made}")


def _count_rows(graph: Graph, node: Node) -> int:
    axis, x = number(graph, node, "axis", 0.0), node.read("x")
    if axis is None or not graph.static(x) or not graph.shape(str(x)):
        return 0
    return graph.shape(str(x))[int(axis)]


def _find_narrow(graph: Graph, name: str | None, dtype: str, depth: int) -> str | None:
    """Return the value of this type that indices are computed from, or None."""
    kind, node = graph.kind(name), graph.maker(name)
    if name is None or kind is None or graph.is_constant(name):
        return None
    if kind.dtype == dtype:
        return name
    if node is None or depth == 0 or kind.dtype in ("bool", "fp32"):
        return None
    reads = [one for side in ("x", "y", "a", "b", "values") for one in node.reads(side)]
    return next((found for one in reads if (found := _find_narrow(graph, one, dtype, depth - 1)) is not None), None)
