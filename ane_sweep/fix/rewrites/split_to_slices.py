"""Replace a split by one slice for each part."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph
from ane_sweep.fix.patterns import number, slice_axis
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=20,
    kind="placement",
    help="split -> one slice for each part that is read",
    condition="always: the parts are the same elements; sizes must be known",
    bound=0.0,
    derivation="elements are copied",
    source="hacksider/Deep-Live-Cam pull request 1894",
    evidence="fewer partitions of a face-swap model, reported there; here predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("split"):
        axis = number(graph, node, "axis")
        is_read = any(graph.users(part) or graph.is_output(part) for part in node.outputs)
        if axis is not None and is_read and graph.static(node.read("x"), *node.outputs):
            yield Site(node, facts={"axis": int(axis)})


def apply(graph: Graph, site: Site) -> None:
    node, axis = site.node, int(str(site.facts["axis"]))
    (x,) = node.reads("x")
    start = 0
    for part in node.outputs:
        stop = start + graph.shape(part)[axis]
        if graph.users(part) or graph.is_output(part):
            graph.replace(part, slice_axis(graph, node, x, axis, start, stop))
        start = stop
