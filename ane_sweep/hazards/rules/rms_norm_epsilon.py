"""Find RMSNorms divided by their largest magnitude whose epsilon was not divided with them, as coremltools 9 writes them."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.hazards.rule import HazardRule, Place, Scene, place_node

RULE = HazardRule(
    order=33,
    kind="numerics",
    condition="sqrt or rsqrt of mean((x / max|x|)^2) + a constant epsilon",
    effect="epsilon grows with max|x| squared: 4 to 6 % off where few activations are large, in fp32 on the CPU too; a row of zeros is NaN",
    source="coremltools#2821, #2822",
    confidence="medium",
    do="write the norm in single ops before the conversion (fix --only rms_norm_scaled then divides epsilon as well)",
)


def find(scene: Scene) -> Iterator[Place]:
    graph = scene.graph
    for node in graph.nodes("sqrt", "rsqrt"):
        added = graph.maker(node.read("x"))
        if added is None or added.type != "add":
            continue
        means = [graph.maker(name) for name in (added.read("x"), added.read("y")) if not graph.is_constant(name)]
        if len(means) == 1 and means[0] is not None and means[0].type == "reduce_mean" and _is_scaled(graph, means[0]):
            yield place_node(node)


def _is_scaled(graph: Graph, mean: Node) -> bool:
    """Return True if the squares of a mean are those of x / max|x|."""
    square = graph.maker(mean.read("x"))
    divided = graph.maker(square.read("x")) if square is not None else None
    largest = graph.maker(divided.read("y")) if divided is not None and divided.type == "real_div" else None
    while largest is not None and largest.type in ("maximum", "add", "clip"):
        largest = next((graph.maker(name) for name in largest.reads("x") if not graph.is_constant(name)), None)
    size = graph.maker(largest.read("x")) if largest is not None and largest.type == "reduce_max" else None
    return size is not None and size.type == "abs"
