"""Move lookups, sorts and whole-number ops to the beginning or the end of the program, as far as no value is made later."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.messages import has_effect
from ane_sweep.fix.rewrite import ProgramRewrite, Site

_SORTS = {"topk", "argsort", "reduce_argmax", "reduce_argmin", "non_zero", "non_maximum_suppression"}
_LOOKUPS = {"gather": "indices", "gather_nd": "indices", "gather_along_axis": "indices", "one_hot": "indices"}
_FLOATS = {"fp16", "fp32"}

REWRITE = ProgramRewrite(
    order=70,
    kind="placement",
    help="lookups, top-k, arg-max and whole-number ops -> to the first or last ops of the program, if others stand before or after",
    condition="always: the ops read what they read before; ops that read or write a state keep their places",
    bound=0.0,
    derivation="no op is changed",
    source="john-rocky/coreai-model-zoo notes (coreai-ane-partition-cost); the planner's path through ops in file order, 751K study",
    evidence="3.06 -> 1.32 ms with top-k out of the graph (Core AI), reported there; the order alone is predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    ops, first, last = _find_edges(graph)
    middle = [place for place, node in enumerate(ops) if node not in first and node not in last]
    if middle and (
        moved := [
            node
            for place, node in enumerate(ops)
            if (node in first and place > middle[0]) or (node in last and place < middle[-1])
        ]
    ):
        yield Site(moved[0])


def apply(graph: Graph, site: Site) -> None:
    rest, first, last = _find_edges(graph)
    others = set(rest)
    constants = [node for node in graph if node not in others]
    groups = [[node for node in rest if rank == (node not in first) + (node in last)] for rank in range(3)]
    graph.reorder([*constants, *groups[0], *groups[1], *groups[2]])


def _find_edges(graph: Graph) -> tuple[list[Node], set[Node], set[Node]]:
    """Return the ops that are no constants, those that can be the first, and those that can be the last."""
    ops = [node for node in graph if not graph.is_constant(node.outputs[0] if node.outputs else None)]
    edge = {node for node in ops if _stays_off(graph, node)}
    first, last = set[Node](), set[Node]()
    for node in ops:
        makers = [maker for name in node.names() if (maker := graph.maker(name)) and not graph.is_constant(name)]
        if node in edge and all(maker in first for maker in makers):
            first.add(node)
    for node in reversed(ops):
        users = [user for name in node.outputs for user in graph.users(name)]
        if node in edge and node not in first and all(user in last for user in users):
            last.add(node)
    return ops, first, last


def _stays_off(graph: Graph, node: Node) -> bool:
    """Return True for an op that the Neural Engine does not take from Core ML: it sorts, looks up, or has whole numbers."""
    if node.type in ("read_state", "cond", "while_loop") or has_effect(node.proto):
        return False
    if node.type in _SORTS:
        return True
    if node.type in _LOOKUPS:
        return not graph.is_constant(node.read(_LOOKUPS[node.type]))
    return any((kind := graph.kind(name)) is not None and kind.dtype not in _FLOATS for name in node.outputs)
