"""Turn a convolution whose kernels lie side by side into a rearrangement and a 1x1 convolution with the same weight."""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.patterns import measure_patch
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=14,
    kind="placement",
    help="conv of patches (kernel = strides) -> reshape, transpose, reshape and a 1x1 conv",
    condition="no padding, groups or dilation; the kernel divides height and width; a const weight",
    bound=1e-5,
    derivation="the same products in another order: n roundings of 2^-24 add up to sqrt(n) of them, 7.6e-6 for n = 16,384",
    source="limits on kernels: 751K study (M4: 15 wide), ANEForge (M1: 13 wide); vision transformers have 14 and 16",
    evidence="predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("conv"):
        size = measure_patch(graph, node)
        if size is not None and len(size) == 2 and max(size) > 1:
            yield Site(node)


def apply(graph: Graph, site: Site) -> None:
    node = site.node
    (x,), (weight,), out = node.reads("x"), node.reads("weight"), node.outputs[0]
    outputs, channels, high, wide = graph.shape(weight)
    batch, _, height, width = graph.shape(x)
    rows, columns, deep = height // high, width // wide, channels * high * wide
    build, flat = Builder(graph, node), [batch * channels, rows, high, columns, wide]
    parts = build.op("reshape", {"x": x, "shape": flat}, flat)
    turned = [flat[axis] for axis in (0, 2, 4, 1, 3)]
    patches = build.op("transpose", {"x": parts, "perm": [0, 2, 4, 1, 3]}, turned)
    small = [batch, deep, rows, columns]
    given = {"x": build.op("reshape", {"x": patches, "shape": small}, small)}
    given["weight"] = build.view(weight, [outputs, deep, 1, 1])
    if bias := node.read("bias"):
        given["bias"] = bias
    graph.replace(out, build.op("conv", given, graph.shape(out)))
