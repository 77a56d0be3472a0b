"""Turn a 3-D convolution whose kernel spans all frames into a 2-D one over frames as channels, with the same weight."""

from collections.abc import Iterator

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.patterns import measure_patch
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=12,
    kind="placement",
    help="conv of 3-D patches that span all frames -> 2-D conv, or linear if they span the image; with patch_conv",
    condition="no padding, groups or dilation; kernel = strides, which divide the sizes; as many frames as the kernel",
    bound=1e-5,
    derivation="the same products in another order: n roundings of 2^-24 add up to sqrt(n) of them, 7.6e-6 for n = 16,384",
    source="apple/coreai-models issue 279 (a conv3d patch embedding as an exact linear)",
    evidence="exact, reported there; here predicted only",
    then=("patch_conv",),
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("conv"):
        size = measure_patch(graph, node)
        if size is not None and len(size) == 3 and graph.shape(str(node.read("x")))[2] == size[0]:
            yield Site(node)


def apply(graph: Graph, site: Site) -> None:
    node = site.node
    (x,), (weight,), out = node.reads("x"), node.reads("weight"), node.outputs[0]
    batch, channels, frames, height, width = graph.shape(x)
    outputs, _, _, high, wide = graph.shape(weight)
    build, bias = Builder(graph, node), node.read("bias")
    if (height, width) == (high, wide):
        sizes, kind, made = [batch, channels * frames * high * wide], "linear", [batch, outputs]
        kernel = build.view(weight, [outputs, sizes[1]])
    else:
        sizes, kind = [batch, channels * frames, height, width], "conv"
        made = [batch, outputs, height // high, width // wide]
        kernel = build.view(weight, [outputs, channels * frames, high, wide])
    given = {"x": build.op("reshape", {"x": x, "shape": sizes}, sizes), "weight": kernel}
    strides = {"strides": [high, wide]} if kind == "conv" else {}
    flat = build.op(kind, {**given, **strides, **({"bias": bias} if bias else {})}, made)
    shape = graph.shape(out)
    graph.replace(out, build.op("reshape", {"x": flat, "shape": shape}, shape))
