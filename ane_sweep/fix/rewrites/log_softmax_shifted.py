"""Compute the logarithm of softmax without the probabilities, which vanish in fp16 below 6e-8.

log(softmax(x)), and x - log(sum(exp(x))), become x - max - log(sum(exp(x - max))).
"""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import (
    add_shifted_sum,
    check_again,
    is_half,
    number,
    numbers,
    only_maker,
    read_log,
    read_log_sum_exp,
)
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=80,
    kind="accuracy",
    lost_db=4.0,
    lost_why="two subtractions and a logarithm are rounded; without overflow the original has two roundings (-2.5 dB measured)",
    help="fp16 log(softmax(x)) and x - logsumexp(x) -> x - max - log(sum(exp(x - max)))",
    condition="no +infinity in x, and no probability that is 0 in fp32 (x within 100 of its largest): there it was -infinity",
    bound=1e-6,
    derivation="two subtractions, a sum and a logarithm in fp32, each 2^-24 of numbers below the largest output: 3e-7",
    source="apple/coremltools issue 2728 and pull request 2727",
    evidence="-inf for a class 17 below the largest, as fp16 has no smaller probability (issue 2728); here predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("log", "sub"):
        if (found := _read(graph, node)) is not None:
            yield Site(node, (found[2],))


def _read(graph: Graph, node: Node) -> tuple[str, list[int], Node] | None:
    """Return (x, axes, the op inside) of a logarithm of softmax."""
    if node.type == "log":
        inner = only_maker(graph, read_log(graph, node))
        axis = number(graph, inner, "axis", -1.0) if inner is not None and inner.type == "softmax" else None
        x = inner.read("x") if inner is not None else None
        if inner is None or axis is None or x is None or not is_half(graph, x, node.outputs[0]):
            return None
        axis = int(axis) % len(graph.shape(x))
        return (x, [axis], inner) if graph.shape(x)[axis] > 1 else None
    inner = only_maker(graph, node.read("y"))
    widened = inner if inner is not None and inner.type == "expand_dims" else None
    if widened is not None:
        inner = only_maker(graph, widened.read("x"))
    found = read_log_sum_exp(graph, inner)
    if found is None or inner is None or found[0] != node.read("x"):
        return None
    x, axes, keeps = found
    rank = len(graph.shape(x))
    added = sorted(axis % rank for axis in numbers(graph, widened, "axes") or []) if widened is not None else []
    fits = not added if keeps else added == axes or (widened is None and axes == list(range(rank)))
    return (x, axes, inner) if fits else None


def apply(graph: Graph, site: Site) -> None:
    x, axes, _ = check_again(_read(graph, site.node))
    build = Builder(graph, site.node)
    _, shifted, rest = add_shifted_sum(build, x, axes)
    graph.replace(site.node.outputs[0], build.op("sub", {"x": shifted, "y": rest}, graph.shape(x)))
