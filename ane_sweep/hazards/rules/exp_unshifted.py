"""Find exponentials whose operand the program does not keep below 11.09."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.hazards.bounds import bound
from ane_sweep.hazards.rule import HazardRule, Place, Scene, place_node

RULE = HazardRule(
    order=15,
    kind="numerics",
    condition="fp16 exp or exp2 whose operand has no upper bound below the logarithm of 65,504; patterns with a rule of their own left out",
    effect="infinite where exp(x) exceeds 65,504 (x > 11.09); --numbers tells if it happens on your inputs",
    source="the range of fp16; coremltools#2729",
    confidence="medium",
    do="clip the operand, or subtract its maximum before",
    level="note",
)
LARGEST = {"exp": 11.09, "exp2": 16.0}


def find(scene: Scene) -> Iterator[Place]:
    for node in scene.graph.nodes(*LARGEST):
        if not scene.graph.has_dtype(node.outputs[0], "fp16") or _has_own_rule(scene.graph, node):
            continue
        if bound(scene.graph, node.read("x"))[1] > LARGEST[node.type]:
            yield place_node(node)


def _has_own_rule(graph: Graph, node: Node) -> bool:
    """Return True if a logarithm of the exponential, or of its sum, follows."""
    user = graph.only_user(node.outputs[0])
    if user is not None and user.type in ("reduce_sum", "cumsum", "add"):
        user = graph.only_user(user.outputs[0])
    return user is not None and user.type == "log"
