"""Find a product of rank 2 that feeds a hardswish."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.hazards.rule import HazardRule, Place, Scene, place_node

RULE = HazardRule(
    order=42,
    kind="numerics",
    condition="linear or matmul with a result of rank 2, then x * sigmoid_hard(x) or x * relu6(x + 3); coremltools 9 writes "
    "thresholded_relu before it",
    effect="errors of 0.2 where 0.003 is usual (MobileNetV3's classifier)",
    source="coreai-torch#51; coremltools#2625 (M4: 0.19 to 0.26)",
    confidence="medium",
    do="reshape the product's operand to rank 4 (1, 1, m, n) before it and back after the hardswish",
    only_ane=True,
)
_PRODUCTS = ("linear", "matmul")
_GATES = ("sigmoid_hard", "relu6", "clip")
_STEPS = 4


def find(scene: Scene) -> Iterator[Place]:
    graph = scene.graph
    for node in graph.nodes(*_PRODUCTS):
        made = node.outputs[0]
        kind = graph.kind(made)
        if kind is None or kind.dtype != "fp16" or len(kind.shape) != 2:
            continue
        after = [user.outputs[0] for user in graph.users(made) if user.type == "thresholded_relu"]
        if any(_is_hardswish(graph, x, user) for x in (made, *after) for user in graph.users(x)):
            yield place_node(node)


def _is_hardswish(graph: Graph, x: str, user: Node) -> bool:
    """Return True if an op multiplies x by a hard sigmoid of x."""
    if user.type != "mul":
        return False
    others = [name for side in ("x", "y") for name in user.reads(side) if name != x]
    return len(others) == 1 and _comes_by_gate(graph, others[0], x)


def _comes_by_gate(graph: Graph, name: str, x: str) -> bool:
    is_gated = False
    for _ in range(_STEPS):
        node = graph.maker(name)
        if node is None:
            return False
        is_gated = is_gated or node.type in _GATES
        reads = [one for side in ("x", "y") for one in node.reads(side) if not graph.is_constant(one)]
        if len(reads) != 1:
            return False
        if reads[0] == x:
            return is_gated
        name = reads[0]
    return False
