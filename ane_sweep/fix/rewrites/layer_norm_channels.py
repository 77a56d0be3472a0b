"""Take layer_norm, and norms that are written out in single ops, over the channel axis of (B, C, 1, S)."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph
from ane_sweep.fix.layout import MovedConstants, apply_move, apply_moves, channels_first, find_root, read_view
from ane_sweep.fix.norms import find_norm
from ane_sweep.fix.patterns import numbers
from ane_sweep.fix.rewrite import ProgramRewrite, Site

REWRITE = ProgramRewrite(
    order=42,
    kind="placement",
    help="layer_norm, or a norm in single ops, over the last axis of (B, S, C) -> over the channels of (B, C, 1, S)",
    condition="one axis, the last; sizes known; its input or output is transposed anyway",
    bound=1e-5,
    derivation="sums over n channels in another order: sqrt(n) * 2^-24 of the sum, 4e-6 for n = 4,096, and a few roundings",
    source="apple/ml-ane-transformers, LayerNormANE; rank 3 with enumerated shapes 175 ms against 20: apple/coremltools issue 1909",
    evidence="by itself predicted only; from macOS 14 on (before, axis 1 overflowed in fp16: more-ane-transformers)",
    then=("cancel_layout", "merge_views"),
)


def match(graph: Graph) -> Iterator[Site]:
    made = MovedConstants()
    for node in graph.nodes("layer_norm"):
        x = node.read("x")
        if x is None or not graph.static(x) or not _is_between(graph, x, node.outputs[0]):
            continue
        if numbers(graph, node, "axes") in ([-1], [len(graph.shape(x)) - 1]):
            yield Site(node, facts={"made": made})
    for node in graph.nodes("rsqrt", "sqrt"):
        norm = find_norm(graph, node)
        if norm is not None and _is_between(graph, norm.x, norm.last.outputs[0]):
            yield Site(norm.last, tuple(norm.nodes), {"made": made, "x": norm.x})


def _is_between(graph: Graph, x: str, made: str) -> bool:
    """Return True if a norm of tokens is near a transpose: `x` comes from one, or the norm's output is read by one."""
    shape = graph.shape(x)
    is_tokens = 0 not in shape and 1 < len(shape) < 4 and shape[-1] > 1 and not graph.is_output(made)
    return is_tokens and (not find_root(graph, x)[1].keeps_order or _is_turned(graph, made))


def _is_turned(graph: Graph, name: str) -> bool:
    for node in graph.users(name):
        step = read_view(graph, node)
        if step is not None and (not step.keeps_order or _is_turned(graph, node.outputs[0])):
            return True
    return False


def apply(graph: Graph, site: Site) -> None:
    node, made = site.node, site.facts["made"]
    assert isinstance(made, MovedConstants)
    x = str(site.facts.get("x", node.read("x")))
    view = channels_first(graph.shape(x)).inverse()
    if node.type == "layer_norm":
        apply_move(graph, node, x, view, made)
    else:
        apply_moves(graph, list(site.others), x, view, made)
