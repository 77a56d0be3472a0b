"""Move ops between a transpose and the transpose back to the layout before the first, so that neither is left."""

from collections.abc import Iterable, Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.layout import VIEWS, Move, MovedConstants, apply_move, plan_move, read_view, trace
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.fix.views import AxisView

REWRITE = ProgramRewrite(
    order=60,
    kind="placement",
    help="transpose -> element-wise, norm, softmax, concat, slice -> transpose back: the op without the transposes",
    condition="the op works element by element, or along axes that both layouts have; fewer transposes are left",
    bound=1e-6,
    derivation="the same elements; sums of a softmax or norm in another order: 2^-24 for each rounding",
    source="apple/coremltools, pass reduce_transposes; apple/ml-ane-transformers, principle 1",
    evidence="predicted only",
    then=("merge_views",),
)
Needs = dict[str, set[Node | None]]  # by value, the ops that need it; None: it is an output of the function


def match(graph: Graph) -> Iterator[Site]:
    needs, made = _find_needs(graph), MovedConstants()
    forms: dict[str, AxisView] = {}  # from where a value lies when the sites before are done
    for node in graph:
        if node.type == "const" or not node.outputs or not graph.static(*node.outputs):
            continue
        step = read_view(graph, node)
        if step is not None:
            x = node.reads("x")[0]
            whole = forms[x].then(step) if x in forms else step
            if whole is not None:
                forms[node.outputs[0]] = whole
            continue
        for lead, view in _list_layouts(graph, node, forms):
            move = plan_move(graph, node, lead, view)
            if move is not None and _gains(graph, node, move, lead, forms, needs):
                forms |= dict(zip(node.outputs, move.views, strict=True))
                yield Site(node, facts={"lead": lead, "view": view, "made": made})
                break


def apply(graph: Graph, site: Site) -> None:
    lead, view, made = (site.facts[key] for key in ("lead", "view", "made"))
    assert isinstance(lead, str) and isinstance(view, AxisView) and isinstance(made, MovedConstants)
    apply_move(graph, site.node, lead, view, made)


def _operands(node: Node) -> list[str]:
    return list(dict.fromkeys(name for key in ("x", "y", "a", "b", "values") for name in node.reads(key)))


def _list_layouts(graph: Graph, node: Node, forms: dict[str, AxisView]) -> list[tuple[str, AxisView]]:
    """Return (input, view to it) for the layouts from which inputs of an op are made: those of four axes first."""
    leads = [name for name in _operands(node) if _is_turned(forms, name)]
    found = sorted(((name, forms[name]) for name in leads), key=lambda one: abs(len(one[1].source) - 4))
    between = [(name, way) for name in leads for _, way in trace(graph, name) if not way.keeps_order]
    return list(dict.fromkeys([*found, *reversed(between)]))


def _is_turned(forms: dict[str, AxisView], name: str) -> bool:
    return name in forms and not forms[name].keeps_order


def _gains(graph: Graph, node: Node, move: Move, lead: str, forms: dict[str, AxisView], needs: Needs) -> bool:
    """Return True if fewer transposes are left when the op is moved."""
    saved = cost = 0
    for name in _operands(node):
        saved += _is_turned(forms, name) and needs.get(name, {node}) <= {node}
        way = move.operands.get(name)
        if name == lead or way is None or graph.is_constant(name):
            continue
        whole = forms[name].then(way) if name in forms else way
        cost += whole is None or not (whole.keeps_order or _has_view(graph, name, way))
    return saved > cost + any(name in needs for name in node.outputs)


def _has_view(graph: Graph, name: str, way: AxisView) -> bool:
    """Return True if a view of a value is there already, up to reshapes."""
    for node in graph.users(name):
        step = read_view(graph, node)
        if step is not None and (step.atoms, step.order) == (way.atoms, way.order):
            return True
        rest = step.inverse().then(way) if step is not None and step.keeps_order else None
        if rest is not None and _has_view(graph, node.outputs[0], rest):
            return True
    return False


def _find_needs(graph: Graph) -> Needs:
    """Return the ops that need a value in its own layout: those that stay, and those of one large operand whose own output
    is needed. An op of two may save more transposes than it costs, and is looked at in `_gains`.
    """
    needs: Needs = {}
    _mark(graph, graph.outputs, None, needs)
    for node in reversed(list(graph)):
        if node.type in VIEWS or node.type == "const":
            continue
        is_needed = any(name in needs for name in node.outputs) and _count_large(graph, node) < 2
        if is_needed or not _is_movable(graph, node):
            _mark(graph, node.names(), node, needs)
    return needs


def _count_large(graph: Graph, node: Node) -> int:
    """Return how many operands are computed and as large as the output, or are joined to it."""
    computed = [name for name in _operands(node) if not graph.is_constant(name)]
    made = node.outputs[0]
    return sum(node.type == "concat" or graph.kind(name) == graph.kind(made) for name in computed)


def _mark(graph: Graph, names: Iterable[str], reader: Node | None, needs: Needs) -> None:
    """Record that an op needs values, and those that they are a mere reshape of."""
    for name in names:
        ways = trace(graph, name) if graph.static(name) and not graph.is_constant(name) else ()
        for one in [one for one, way in ways if way.keeps_order]:
            needs.setdefault(one, set()).add(reader)


def _is_movable(graph: Graph, node: Node) -> bool:
    """Return True if an op could be moved from some other layout: that of its own output, with all axes reversed."""
    shapes = {name: graph.shape(name) for name in _operands(node) if graph.static(name)}
    if not shapes or not graph.static(*node.outputs):
        return False
    lead, shape = max(shapes.items(), key=lambda one: len(one[1]))
    return plan_move(graph, node, lead, AxisView.transpose(shape, range(len(shape)))) is not None
