"""Find indices that were fp16 numbers before: fp16 has no odd whole numbers above 2,048."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import number
from ane_sweep.hazards.bounds import bound
from ane_sweep.hazards.rule import HazardRule, Place, Scene, place_node

RULE = HazardRule(
    order=40,
    kind="numerics",
    condition="a lookup into more than 2,048 rows whose indices come from fp16 numbers",
    effect="ids above 2,048 are rounded to even ones, above 4,096 to multiples of 4: another row is read",
    source="the range of fp16; coremltools#2416 (whole numbers in fp16), #2365",
    confidence="high",
    do="declare the input as int32, and keep ids in whole numbers up to the lookup",
)
MOST = 2048
_LOOKUPS = ("gather", "gather_along_axis", "gather_nd")
_BACK = 12


def find(scene: Scene) -> Iterator[Place]:
    for node in scene.graph.nodes(*_LOOKUPS):
        rows = _count_rows(scene.graph, node)
        made = _find_half(scene.graph, node.read("indices"), _BACK) if rows > MOST else None
        if made is not None and bound(scene.graph, made)[1] > MOST:
            yield place_node(node, f"{rows:,} rows, indices from the fp16 value {made}")


def _count_rows(graph: Graph, node: Node) -> int:
    axis, x = number(graph, node, "axis", 0.0), node.read("x")
    if axis is None or not graph.static(x) or not graph.shape(str(x)):
        return 0
    return graph.shape(str(x))[int(axis)]


def _find_half(graph: Graph, name: str | None, depth: int) -> str | None:
    """Return the fp16 value that indices are computed from, or None."""
    kind, node = graph.kind(name), graph.maker(name)
    if name is None or kind is None or graph.is_constant(name):
        return None
    if kind.dtype == "fp16":
        return name
    if node is None or depth == 0 or kind.dtype in ("bool", "fp32"):
        return None
    reads = [one for side in ("x", "y", "a", "b", "values") for one in node.reads(side)]
    return next((found for one in reads if (found := _find_half(graph, one, depth - 1)) is not None), None)
