"""Keep a band of a matrix by a constant mask instead of band_part (torch.tril and torch.triu)."""

from collections.abc import Iterator

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import number
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=21,
    kind="placement",
    help="band_part (tril, triu) -> select by a constant mask",
    condition="fp16 or fp32; sizes, lower and upper known; a mask of at most 4 MB",
    bound=0.0,
    derivation="elements are copied, or are 0",
    source="smpanaro/more-ane-transformers (band_part); 751K, M4: Unsupported MIL operation band_part",
    evidence="that the CPU runs it (751K, M4; smpanaro, M1 Max); the gain is predicted only",
)

FLOATS = {"fp16": np.float16, "fp32": np.float32}
LARGEST_MASK = 2**22  # truth values lie in the program itself, not in the weight file, so each load reads them


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("band_part"):
        x = node.read("x")
        if (
            x is not None
            and graph.static(x)
            and graph.dtype(x) in FLOATS
            and band_limits(graph, node) is not None
            and np.prod(graph.shape(x)[-2:]) <= LARGEST_MASK
        ):
            yield Site(node)


def apply(graph: Graph, site: Site) -> None:
    (x,), limits = site.node.reads("x"), band_limits(graph, site.node)
    assert limits is not None
    build, shape, dtype = Builder(graph, site.node), graph.shape(x), graph.dtype(x)
    zero = build.const(np.zeros((), FLOATS[dtype]))
    lower, upper = limits
    above = np.arange(shape[-1]) - np.arange(shape[-2])[:, None]
    is_kept = ((lower < 0) | (above >= -lower)) & ((upper < 0) | (above <= upper))
    graph.replace(site.node.outputs[0], build.op("select", {"cond": is_kept, "a": x, "b": zero}, shape, dtype))


def band_limits(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Return how many diagonals a band_part keeps below and above the main one, negative for all; None if not constant."""
    lower, upper = number(graph, node, "lower", -1), number(graph, node, "upper", -1)
    return None if lower is None or upper is None else (int(lower), int(upper))
