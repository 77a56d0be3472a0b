"""Compute log(cumsum(exp(x))) by doubling, without an exponential of x and without cumsum.

After step k every element holds the logarithm of the sum of up to 2^k exponentials, from two such logarithms a and b:
max(a, b) + softplus(-|a - b|). The advice in the source, a shift by the largest of all elements, would turn elements
that are 17 below it into -infinity in fp16.
"""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import check_again, is_half, number, only_maker, read_log, slice_axis
from ane_sweep.fix.rewrite import ProgramRewrite, Site

_MOST = 1024  # elements along the axis: 10 ops for each doubling

REWRITE = ProgramRewrite(
    order=82,
    kind="accuracy",
    lost_db=6.0,
    lost_why="each doubling adds roundings; without overflow the original has three in all (-2.1 dB measured for 64 elements)",
    help="fp16 log(cumsum(exp(x))) -> log2(n) steps of max(a, b) + softplus(-|a - b|)",
    condition="x finite; the axis has at most 1,024 elements; neither reversed nor exclusive",
    bound=1e-5,
    derivation="ten steps at most, each with three roundings of 2^-24 of the largest output: 1.8e-6; as much before",
    source="apple/coremltools issue 2729 (the fault; another form there)",
    evidence="inf and NaN beyond x = 11.09, as exp(x) overflows (issue 2729); here predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("log"):
        found = _read(graph, node)
        if found is not None and 2 <= graph.shape(found[0])[found[1]] <= _MOST:
            yield Site(node)


def _read(graph: Graph, node: Node) -> tuple[str, int] | None:
    """Return (x, axis) of log(cumsum(exp(x)))."""
    total = only_maker(graph, read_log(graph, node))
    inner = only_maker(graph, total.read("x")) if total is not None and total.type == "cumsum" else None
    if total is None or inner is None or inner.type != "exp":
        return None
    x, axis = inner.read("x"), number(graph, total, "axis", 0.0)
    plain = all(number(graph, total, name, 0.0) == 0 for name in ("reverse", "exclusive"))
    if x is None or axis is None or not plain or not is_half(graph, x, node.outputs[0]):
        return None
    return x, int(axis) % len(graph.shape(x))


def apply(graph: Graph, site: Site) -> None:
    made, axis = check_again(_read(graph, site.node))
    build, shape = Builder(graph, site.node), graph.shape(made)
    count, step = shape[axis], 1
    while step < count:
        head = slice_axis(graph, site.node, made, axis, 0, step)
        later = slice_axis(graph, site.node, made, axis, step, count)
        earlier = slice_axis(graph, site.node, made, axis, 0, count - step)
        part = graph.shape(later)
        gap = build.op("abs", {"x": build.op("sub", {"x": later, "y": earlier}, part)}, part)
        rest = build.op("softplus", {"x": build.op("mul", {"x": gap, "y": -1.0}, part)}, part)
        both = build.op("add", {"x": build.op("maximum", {"x": later, "y": earlier}, part), "y": rest}, part)
        made = build.op("concat", {"values": [head, both], "axis": axis, "interleave": False}, shape)
        step *= 2
    graph.replace(site.node.outputs[0], made)
