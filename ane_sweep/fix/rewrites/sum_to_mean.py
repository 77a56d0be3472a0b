"""Compute a mean that is written as a sum and a factor in one op: the sum alone may exceed the largest fp16 number."""

import math
from collections.abc import Iterator

from ane_sweep.fix.build import Builder, Given
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import is_half, is_number, number, numbers, only_maker
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=84,
    kind="accuracy",
    lost_db=20.0,
    lost_why="the original, with which it is compared, holds 1/n or n rounded to fp16, up to 2^-11 off; the mean does not",
    help="fp16 reduce_sum over n elements, times 1/n or divided by n -> reduce_mean",
    condition="the factor is a constant that is 1/n as nearly as an fp16 number can be",
    bound=1e-3,
    derivation="the factor in fp16 is up to 2^-11 off 1/n, the mean is not",
    source="shared advice: keep sums over long axes below 65,504",
    evidence="an fp16 sum overflows beyond 65,504, arithmetic alone; here predicted only",
    scales=(1.0, 4096.0),
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("mul", "real_div"):
        if found := _read(graph, node):
            yield Site(node, (found,))


def _read(graph: Graph, node: Node) -> Node | None:
    """Return the sum that an op turns into a mean."""
    for side, other in (("x", "y"), ("y", "x")):
        total = only_maker(graph, node.read(side))
        if total is None or total.type != "reduce_sum" or (node.type == "real_div" and side == "y"):
            continue
        x = total.read("x")
        if x is None or not is_half(graph, x, node.outputs[0]):
            continue
        shape = graph.shape(x)
        axes = numbers(graph, total, "axes") if "axes" in total.proto.inputs else list(range(len(shape)))
        count = math.prod(shape[axis] for axis in axes or [])
        fits = graph.shape(node.outputs[0]) == graph.shape(total.outputs[0])
        if fits and count > 1 and is_number(graph, node.read(other), count if node.type == "real_div" else 1 / count):
            return total
    return None


def apply(graph: Graph, site: Site) -> None:
    (total,) = site.others
    (x,) = total.reads("x")
    axes = numbers(graph, total, "axes") or list(range(len(graph.shape(x))))
    given: dict[str, Given] = {"x": x, "axes": axes, "keep_dims": bool(number(graph, total, "keep_dims", 0.0))}
    made = Builder(graph, site.node).op("reduce_mean", given, graph.shape(site.node.outputs[0]))
    graph.replace(site.node.outputs[0], made)
