"""Split a product whose outputs are more than the Neural Engine takes on one axis, as a vocabulary head's are."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.patterns import number
from ane_sweep.fix.rewrite import ProgramRewrite, Site

_MOST = 16384  # outputs of one part: the limit of an axis up to A16 and M3; later chips take 65,536

REWRITE = ProgramRewrite(
    order=16,
    kind="placement",
    help="linear or conv with more than 16,384 outputs -> parts of at most 16,384, and a concat",
    condition="a const weight that is not compressed, and one group",
    bound=1e-6,
    derivation="the same sums; a library may add in another order for another number of columns",
    source="more-ane-transformers notes (linear of 50,257 left the Neural Engine); ANEMLL's heads of 16 parts",
    evidence="450 from 663 ms for GPT-2 XL with other changes, reported; here predicted only; 16 parts lost 4.6 % on an iPhone 17 Pro",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("linear", "conv"):
        weight, bias = node.read("weight"), node.read("bias")
        if (
            graph.static(node.read("x"), node.outputs[0])
            and graph.message(weight) is not None
            and (bias is None or graph.message(bias) is not None)
            and graph.shape(str(weight))[0] > _MOST
            and number(graph, node, "groups", 1) == 1
            and not {"bias", "weight"} & {key for key in node.proto.inputs if not node.reads(key)}
        ):
            yield Site(node)


def apply(graph: Graph, site: Site) -> None:
    node, build = site.node, Builder(graph, site.node)
    weight, bias = graph.value(node.read("weight")), graph.value(node.read("bias"))
    assert isinstance(weight, np.ndarray)
    shape, axis = list(graph.shape(node.outputs[0])), 1 if node.type == "conv" else -1
    axis %= len(shape)
    count = -(-len(weight) // _MOST)
    edges = [part * len(weight) // count for part in range(count + 1)]
    parts = []
    for start, stop in pairwise(edges):
        given = {key: names[0] for key in node.proto.inputs if (names := node.reads(key))}
        given["weight"] = build.const(weight[start:stop], "weight")
        if isinstance(bias, np.ndarray):
            given["bias"] = build.const(bias[start:stop], "bias")
        shape[axis] = stop - start
        parts.append(build.op(node.type, given, shape))
    out = node.outputs[0]
    graph.replace(out, build.op("concat", {"values": parts, "axis": axis, "interleave": False}, graph.shape(out)))
