"""Pick one constant place of an axis by a gather of one element and a squeeze instead of a gather of rank 0."""

from collections.abc import Iterator

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.patterns import number
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=19,
    kind="placement",
    help="gather by a constant of rank 0 -> gather by [1], and squeeze",
    condition="always: the same elements; a constant index, no batch dimensions",
    bound=0.0,
    derivation="elements are copied",
    source="hacksider/Deep-Live-Cam issue 1777 (through ONNX Runtime's provider, whose limit it may be)",
    evidence="86.8 -> 80.6 ms, 16 -> 0 nodes on the CPU, reported there; here predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("gather"):
        indices = graph.parameter(node, "indices")
        if (
            isinstance(indices, np.ndarray)
            and indices.ndim == 0
            and node.reads("indices")
            and graph.static(node.read("x"), node.outputs[0])
            and number(graph, node, "axis", 0) is not None
            and number(graph, node, "batch_dims", 0) == 0
        ):
            yield Site(node)


def apply(graph: Graph, site: Site) -> None:
    node, build, out = site.node, Builder(graph, site.node), site.node.outputs[0]
    shape, axis = list(graph.shape(str(node.read("x")))), int(number(graph, node, "axis", 0) or 0)
    axis %= len(shape)
    shape[axis] = 1
    given = {key: names[0] for key in node.proto.inputs if (names := node.reads(key))}
    given["indices"] = build.view(given["indices"], [1])
    one = build.op("gather", given, shape)
    graph.replace(out, build.op("squeeze", {"x": one, "axes": [axis]}, graph.shape(out)))
