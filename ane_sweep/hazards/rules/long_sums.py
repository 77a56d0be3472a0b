"""Find sums in fp16 over so many elements that the sum cannot grow any more."""

import math
from collections.abc import Iterator

from ane_sweep.fix.patterns import numbers
from ane_sweep.hazards.rule import HazardRule, Place, Scene, place_node

RULE = HazardRule(
    order=32,
    kind="numerics",
    condition="fp16 reduce_sum over more than 2,048 elements",
    effect="reduce_sum adds in fp16: beyond 2,048 times an element nothing is added any more; beyond 65,504 it is infinite",
    source="ANEForge (probes on M1 to M5)",
    confidence="medium",
    do="sum by a product with ones: matmul sums wider",
    only_ane=True,
    level="note",
)
MOST = 2048


def find(scene: Scene) -> Iterator[Place]:
    graph = scene.graph
    for node in graph.nodes("reduce_sum"):
        x = node.read("x")
        if x is None or not graph.static(x) or graph.dtype(x) != "fp16":
            continue
        shape = graph.shape(x)
        axes = numbers(graph, node, "axes") if "axes" in node.proto.inputs else list(range(len(shape)))
        count = math.prod(shape[axis] for axis in axes or [])
        if count > MOST:
            yield place_node(node, f"{count:,} elements")
