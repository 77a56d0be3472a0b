"""Find epsilons that are 0 in fp16, so that a row of zeros is divided by 0."""

from collections.abc import Iterator

import numpy as np

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import number
from ane_sweep.hazards.rule import HazardRule, Place, Scene, place_node

RULE = HazardRule(
    order=31,
    kind="numerics",
    condition="an epsilon below 3e-8, which fp16 rounds to 0, in layer_norm, instance_norm, batch_norm, or l2_norm, "
    "or a constant 0 added before rsqrt",
    effect="a row whose values are equal is divided by 0: infinite or NaN",
    source="apple/ml-ane-transformers (DistilBERT's 1e-12); coremltools#2822",
    confidence="medium",
    do="convert with an epsilon of 1e-7 or more; 1e-5 is usual",
)
SMALLEST = 2.0**-25  # halfway to the smallest fp16 number
_NORMS = ("layer_norm", "instance_norm", "batch_norm", "l2_norm", "rsqrt")


def find(scene: Scene) -> Iterator[Place]:
    graph = scene.graph
    for node in graph.nodes(*_NORMS):
        if not graph.has_dtype(node.outputs[0], "fp16"):
            continue
        epsilon = number(graph, node, "epsilon", None)
        if node.type == "rsqrt":
            if _adds_zero(graph, graph.maker(node.read("x"))):
                yield place_node(node)
        elif epsilon is not None and abs(epsilon) < SMALLEST:
            yield place_node(node)


def _adds_zero(graph: Graph, node: Node | None) -> bool:
    """Return True for x + 0 with a constant 0, as an epsilon becomes that fp16 cannot hold."""
    if node is None or node.type != "add":
        return False
    values = [graph.value(node.read(side)) for side in "xy"]
    return any(isinstance(one, np.ndarray) and one.size == 1 and float(one.reshape(-1)[0]) == 0.0 for one in values)
