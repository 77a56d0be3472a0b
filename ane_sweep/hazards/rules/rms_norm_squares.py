"""Find RMSNorm, and other norms in single ops, that square numbers which may exceed 256."""

from collections.abc import Iterator
from dataclasses import replace

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.hazards.bounds import largest
from ane_sweep.hazards.rule import HazardRule, Place, Scene, find_rewrite_places

RULE = HazardRule(
    order=30,
    kind="numerics",
    condition="fp16 x * rsqrt(mean(x * x) + epsilon) in single ops, where the program does not keep |x| below 256",
    effect="x * x is infinite beyond |x| = 256 and the normed row 0; language models have such activations",
    source="swift-transformers#95 (OpenELM), executorch#8641 and #19523 (Llama), coremltools#2585",
    confidence="high",
    mends=("rms_norm_scaled", "rms_norm_as_layer_norm"),
)
LIMIT = 255.9
_BACK = 4  # ops from the norm's last one to the square


def find(scene: Scene) -> Iterator[Place]:
    if not scene.graph.nodes("rsqrt", "sqrt", "pow"):
        return
    for place in find_rewrite_places(scene, "rms_norm_scaled", "rms_norm_as_layer_norm"):
        square = _find_square(scene.graph, scene.graph.maker(place.name))
        x = square.read("x") if square is not None else None
        if x is not None and largest(scene.graph, x) <= LIMIT:
            continue
        centre = scene.graph.maker(x)
        is_centred = centre is not None and centre.type == "sub"
        yield replace(place, level="note", fact="a norm of x - mean(x) in single ops") if is_centred else place


def _find_square(graph: Graph, node: Node | None) -> Node | None:
    """Return the op that squares, among the ops before a norm's last one."""
    left = [(node, 0)]
    while left:
        at, steps = left.pop(0)
        if at is None or steps > _BACK + 2:
            continue
        is_power = at.type == "pow" and steps > 1  # one nearer to the end is the root
        if at.type == "square" or is_power or (at.type == "mul" and at.read("x") == at.read("y")):
            return at
        left += [(graph.maker(name), steps + 1) for side in ("x", "y") for name in at.reads(side)]
    return None
