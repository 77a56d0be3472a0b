"""Compute softplus from relu and the softplus of a number that is never positive, which cannot overflow.

softplus(x) = log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). Mish is x * tanh(softplus(x)) in a program, and is mended
with it.
"""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=310,
    kind="accuracy",
    help="fp16 softplus (and mish with it) -> relu(x) + softplus(-|x|)",
    condition="always; fp16 only, as in fp32 nothing overflows",
    bound=1e-6,
    derivation="three roundings of fp32 at most, each 2^-24 of the result: 1.8e-7",
    source="apple/coremltools issues 2359 and 2687, pull request 2618",
    evidence="softplus is 0 beyond x = 10.397 on the Neural Engine (several parties); the replacement is predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("softplus"):
        (x,) = node.reads("x")
        if graph.static(x) and graph.dtype(x) == "fp16" and not _is_shifted(graph, x):
            yield Site(node)


def _is_shifted(graph: Graph, x: str) -> bool:
    """Return True for -|...|, as this rewrite writes it."""
    maker = graph.maker(x)
    inner = graph.maker(maker.read("x")) if maker is not None and maker.type == "mul" else None
    factor = graph.value(maker.read("y")) if maker is not None and inner is not None and inner.type == "abs" else None
    return factor is not None and not isinstance(factor, str) and bool((factor <= 0).all())


def apply(graph: Graph, site: Site) -> None:
    (x,) = site.node.reads("x")
    build, shape = Builder(graph, site.node), graph.shape(x)
    turned = build.op("mul", {"x": build.op("abs", {"x": x}, shape), "y": -1.0}, shape)
    rest = build.op("softplus", {"x": turned}, shape)
    graph.replace(site.node.outputs[0], build.op("add", {"x": build.op("relu", {"x": x}, shape), "y": rest}, shape))
