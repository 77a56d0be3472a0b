"""Compute log(1 + exp(x)), a softplus that was written out, as relu(x) + softplus(-|x|), which cannot overflow."""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import check_again, is_half, is_number, number, only_maker, other_input, read_log
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=83,
    kind="accuracy",
    help="fp16 log(1 + exp(x)), and log1p(exp(x)) -> relu(x) + softplus(-|x|)",
    condition="always; x below 88, as exp(x) overflows in fp32 beyond",
    bound=1e-4,
    derivation="1 + exp(x) is rounded by 2^-24 before: 1e-4 of an output of 6e-4, if none is larger",
    source="apple/coreai-torch issue 21",
    evidence="exp(x) overflows fp16 beyond x = 11.09, arithmetic alone; here predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("log"):
        if _read(graph, node):
            yield Site(node)


def _read(graph: Graph, node: Node) -> str | None:
    """Return x of log(1 + exp(x)), where the 1 is a constant or the logarithm's epsilon."""
    inner = only_maker(graph, node.read("x") if number(graph, node, "epsilon", 0.0) == 1.0 else _drop_one(graph, node))
    if inner is None or inner.type != "exp" or not is_half(graph, inner.read("x"), node.outputs[0]):
        return None
    x = inner.read("x")
    return x if x is not None and graph.shape(x) == graph.shape(node.outputs[0]) else None


def _drop_one(graph: Graph, node: Node) -> str | None:
    total = only_maker(graph, read_log(graph, node))
    if total is None or total.type != "add":
        return None
    names = [name for side in ("x", "y") if (name := total.read(side)) and is_number(graph, name, 1.0)]
    return other_input(total, names[0]) if len(names) == 1 else None


def apply(graph: Graph, site: Site) -> None:
    x = check_again(_read(graph, site.node))
    build, shape = Builder(graph, site.node), graph.shape(x)
    turned = build.op("mul", {"x": build.op("abs", {"x": x}, shape), "y": -1.0}, shape)
    rest = build.op("softplus", {"x": turned}, shape)
    graph.replace(site.node.outputs[0], build.op("add", {"x": build.op("relu", {"x": x}, shape), "y": rest}, shape))
