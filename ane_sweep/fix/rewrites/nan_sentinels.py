"""Name tests for NaN: on the Neural Engine a NaN does not reach them. No op can mend that, so nothing is replaced."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=99,
    kind="accuracy",
    help="x != x, a test for NaN: named, not replaced; pass the sentinel as an input of its own",
    condition="none: the program's interface would have to change",
    bound=0.0,
    derivation="nothing is changed",
    source="FluidInference/FluidAudio pull request 679",
    evidence="a NaN sentinel was lost before isnan on the Neural Engine (pull request 679)",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("not_equal"):
        x = node.read("x")
        if x is not None and x == node.read("y") and not graph.is_constant(x) and graph.dtype(x) in ("fp16", "fp32"):
            yield Site(node)


def apply(graph: Graph, site: Site) -> None:
    raise ValueError("a NaN is lost before this test on the Neural Engine; pass the sentinel as an input of its own")
