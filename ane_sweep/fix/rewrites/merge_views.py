"""Merge chains of reshapes and transposes, drop those that undo each other, and share equal ones."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.layout import VIEWS, find_step, read_view, see_from, trace
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.views import AxisView, Step

REWRITE = ProgramRewrite(
    order=62,
    kind="placement",
    help="reshapes and transposes in a row -> one of each, or none; equal ones of one value -> one; rank 5 -> 4",
    condition="always: the same elements in the same order; sizes must be known",
    bound=0.0,
    derivation="elements are copied",
    source="apple/coremltools, passes merge_consecutive_reshapes and reduce_transposes; rank 5: FluidAudio's playbook, ANEForge",
    evidence="predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    first: dict[tuple[str, AxisView], str] = {}
    left = []
    for node in graph:
        view = read_view(graph, node)
        if view is None:
            continue
        made = node.outputs[0]
        same = first.setdefault((node.reads("x")[0], view), made)
        if same == made or graph.is_output(made):
            left.append(node)
        else:
            yield Site(node, facts={"same": same})
    for node in left:
        if graph.is_output(node.outputs[0]) or any(user.type not in VIEWS for user in graph.users(node.outputs[0])):
            chain = list(trace(graph, node.outputs[0]))
            root, whole = chain[-1]
            steps = whole.steps
            if steps is not None and _is_shorter(graph, node, chain, steps):
                yield Site(node, facts={"root": root, "view": whole})


def apply(graph: Graph, site: Site) -> None:
    made, same, view = site.node.outputs[0], site.facts.get("same"), site.facts.get("view")
    if isinstance(same, str):
        graph.replace(made, same)
        return
    assert isinstance(view, AxisView)
    graph.replace(made, see_from(graph, str(site.facts["root"]), view))


def _is_shorter(graph: Graph, node: Node, chain: list[tuple[str, AxisView]], steps: list[Step]) -> bool:
    """Return True if the steps, less those that are there, cost less than the ops that go; or end five axes."""
    root, going = chain[-1][0], [node]
    for name, _ in chain[1:-1]:
        maker = graph.maker(name)
        if maker is None or graph.only_user(name) is None:
            break
        going.append(maker)
    place = root
    missing = list(steps)
    while missing and (found := find_step(graph, place, missing[0])) is not None:
        place = found
        missing.pop(0)
    if place == node.outputs[0]:
        return False
    old, new = sum(_cost(one.type) for one in going), sum(_cost(kind) for kind, _ in missing)
    new += not missing and graph.is_output(node.outputs[0])  # the output keeps its name: an identity is added
    if new != old or len(going) != len(chain) - 1:
        return new < old
    ranks = [
        max((len(given) for _, given in steps), default=0),
        max((len(view.shape) for view in (read_view(graph, one) for one in going) if view), default=0),
    ]
    return ranks[0] < ranks[1] and ranks[1] > 4


def _cost(kind: str) -> int:
    return 8 if kind == "transpose" else 1
