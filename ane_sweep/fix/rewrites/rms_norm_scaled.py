"""Divide a vector by its largest magnitude before RMSNorm squares it, as squares beyond 256 overflow fp16.

x / sqrt(mean(x^2) + e) = y / sqrt(mean(y^2) + e / m / m) with y = x / m, for every m > 0. A variance that is written out
(a centred x) is the same pattern.
"""

import math
from collections.abc import Iterator

from ane_sweep.fix.build import Builder, Given
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import check_again, is_half, is_number, number, numbers, only_maker
from ane_sweep.fix.rewrite import ProgramRewrite, Site

_TINY = 2.0**-14  # the smallest normal fp16 number

REWRITE = ProgramRewrite(
    order=85,
    kind="accuracy",
    lost_db=3.0,
    lost_why="the division by the largest is one rounding more; without overflow the original lacks it (-1.1 dB measured)",
    help="fp16 x * rsqrt(mean(x^2) + epsilon), RMSNorm or a norm written out -> the same of x / max|x|",
    condition="always: m = max(max|x|, sqrt(epsilon)) is positive",
    bound=2e-6,
    derivation="three more divisions in fp32, each 2^-24 of the result: 2e-7, and as much for another order of the sums",
    source="huggingface/swift-transformers issue 95; coremltools 9 writes torch's rms_norm in such a way",
    evidence="OpenELM in fp16 at twice the speed of fp32 (swift-transformers issue 95, Mac not named); here predicted only",
    scales=(1.0, 400.0),
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("mul", "real_div"):
        if found := _read(graph, node):
            x, mean, _ = found
            if not _is_scaled(graph, x):
                yield Site(node, (mean,))


def _read(graph: Graph, node: Node) -> tuple[str, Node, float] | None:
    """Return (x, the mean, epsilon) of a norm."""
    for side, other in (("x", "y"), ("y", "x")):
        x, root = node.read(side), only_maker(graph, node.read(other))
        if (
            x is None
            or root is None
            or not is_half(graph, x, node.outputs[0])
            or (node.type == "real_div" and side == "y")
        ):
            continue
        inverse = root.type == "rsqrt" or (root.type == "pow" and is_number(graph, root.read("y"), -0.5))
        if not (inverse if node.type == "mul" else root.type == "sqrt"):
            continue
        epsilon = number(graph, root, "epsilon", 1e-12) if root.type == "rsqrt" else 0.0
        mean, added = _drop_epsilon(graph, only_maker(graph, root.read("x")))
        if epsilon is None or mean is None or mean.type != "reduce_mean" or not number(graph, mean, "keep_dims", 0.0):
            continue
        if _is_square(graph, only_maker(graph, mean.read("x")), x) and graph.shape(x) == graph.shape(node.outputs[0]):
            return x, mean, max(epsilon + added, 0.0)
    return None


def _drop_epsilon(graph: Graph, node: Node | None) -> tuple[Node | None, float]:
    """Return the op that makes the mean, and the constant that is added to it."""
    if node is None or node.type != "add":
        return node, 0.0
    for side, other in (("x", "y"), ("y", "x")):
        added = number(graph, node, side)
        if added is not None and 0 <= added < 1:
            return only_maker(graph, node.read(other)), added
    return None, 0.0


def _is_square(graph: Graph, node: Node | None, x: str) -> bool:
    if node is None or node.read("x") != x:
        return False
    return (
        node.type == "square"
        or (node.type == "mul" and node.read("y") == x)
        or (node.type == "pow" and is_number(graph, node.read("y"), 2.0))
    )


def _is_scaled(graph: Graph, x: str) -> bool:
    """Return True for x / max|x|, with or without a bound below."""
    maker = graph.maker(x)
    size = graph.maker(maker.read("y")) if maker is not None and maker.type == "real_div" else None
    if size is not None and size.type == "maximum":
        size = graph.maker(size.read("x"))
    inner = graph.maker(size.read("x")) if size is not None and size.type == "reduce_max" else None
    return inner is not None and inner.type == "abs"


def apply(graph: Graph, site: Site) -> None:
    x, mean, epsilon = check_again(_read(graph, site.node))
    build, shape, short = Builder(graph, site.node), graph.shape(x), graph.shape(mean.outputs[0])
    axes = numbers(graph, mean, "axes") or list(range(len(shape)))
    over: dict[str, Given] = {"axes": axes, "keep_dims": True}
    largest = build.op("reduce_max", {"x": build.op("abs", {"x": x}, shape), **over}, short)
    largest = build.op("maximum", {"x": largest, "y": max(math.sqrt(epsilon), _TINY)}, short)
    scaled = build.op("real_div", {"x": x, "y": largest}, shape)
    total = build.op("reduce_mean", {"x": build.op("square", {"x": scaled}, shape), **over}, short)
    if epsilon > 2.0**-24:  # the smallest fp16 number
        given = build.const(epsilon, "epsilon", "fp16")
        rest = build.op("real_div", {"x": build.op("real_div", {"x": given, "y": largest}, short), "y": largest}, short)
        total = build.op("add", {"x": total, "y": rest}, short)
    root = build.op("rsqrt", {"x": total}, short)
    graph.replace(site.node.outputs[0], build.op("mul", {"x": scaled, "y": root}, shape))
