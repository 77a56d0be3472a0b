"""Find masks of -infinity, as finfo(fp32).min becomes in fp16, on their way to a softmax."""

from collections.abc import Iterator

import numpy as np

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.hazards.rule import HazardRule, Place, Scene, place_node

RULE = HazardRule(
    order=20,
    kind="numerics",
    condition="an fp16 constant of -65,504 or less, or a wider one that is cast to fp16, that meets scores before softmax",
    effect="scores below -16 make -infinity of it; a row that is masked as a whole is NaN, and 0 times -infinity is NaN",
    source="coremltools#2669 (a fault of the converter, merged 2026-04), #2353; transformers#17306",
    confidence="high",
    mends=("masks_finite",),
    do="fill masks with -30,000, or convert with a coremltools that has #2669",
)
_LOWEST = {"fp16": -65504.0, "fp32": -3.0e38}
_MOST_ELEMENTS = 1 << 22
_STEPS = 12
_ON_THE_WAY = {
    "add", "mul", "sub", "select", "cast", "expand_dims", "squeeze", "reshape", "transpose", "tile", "slice_by_index",
    "slice_by_size", "identity", "softmax", "scaled_dot_product_attention", "gather", "concat", "maximum",
}  # fmt: skip
_END = ("softmax", "scaled_dot_product_attention")


def find(scene: Scene) -> Iterator[Place]:
    for node in scene.graph.nodes("const"):
        if not any(user.type in _ON_THE_WAY for user in scene.graph.users(node.outputs[0])):
            continue
        kind = scene.graph.kind(node.outputs[0])
        if kind is None or kind.dtype not in _LOWEST or kind.count > _MOST_ELEMENTS:
            continue
        end = _find_softmax(scene.graph, node)
        if end is None or (kind.dtype == "fp32" and not scene.graph.has_dtype(end.outputs[0], "fp16")):
            continue
        value = scene.graph.value(node.outputs[0])
        if isinstance(value, np.ndarray) and (value <= _LOWEST[kind.dtype]).any():
            yield place_node(end)


def _find_softmax(graph: Graph, node: Node) -> Node | None:
    """Return the first softmax that a constant reaches through element-wise ops and views, or None."""
    left, seen = [(node, 0)], {node}
    while left:
        at, steps = left.pop(0)
        for user in (one for name in at.outputs for one in graph.users(name)):
            if user.type not in _ON_THE_WAY or user in seen:
                continue
            if user.type in _END:
                return user
            seen.add(user)
            if steps < _STEPS:
                left.append((user, steps + 1))
    return None
