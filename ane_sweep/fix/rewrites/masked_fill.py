"""Fill masked scores by an addition instead of a selection, where the mask is constant and a softmax follows.

A mask that is computed stays: a row that is masked as a whole has equal weights after a selection, and other ones after
an addition.
"""

from collections.abc import Iterator

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.patterns import copy_op, number
from ane_sweep.fix.rewrite import ProgramRewrite, Site

_LEAST = -1e4  # exp(-10,000 + 2 * 4,000) is 0 in fp32

REWRITE = ProgramRewrite(
    order=24,
    kind="placement",
    help="select of scores or a low constant, before a softmax -> scores + mask",
    condition="a const mask that leaves a place free in each row, a fill of -10,000 or lower, scores within 4,000 of 0",
    bound=0.0,
    derivation="masked places have the weight 0 in either form, and 0 is added to the others",
    source="FluidInference/mobius, ANE_Candidates notes",
    evidence="predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    for node in graph.nodes("select"):
        after = graph.only_user(node.outputs[0])
        cond = graph.value(node.read("cond"))
        if (
            after is None
            or after.type != "softmax"
            or not isinstance(cond, np.ndarray)
            or not graph.static(node.outputs[0])
        ):
            continue
        axis = number(graph, after, "axis", -1)
        for scores, fill in (("a", "b"), ("b", "a")):
            name, value = node.read(scores), _read_fill(graph, node, fill)
            if value is None or axis is None or not graph.static(name) or graph.is_constant(name):
                continue
            shape, free = graph.shape(node.outputs[0]), cond if scores == "a" else ~cond
            if graph.shape(str(name)) == shape and np.broadcast_to(free, shape).any(axis=int(axis)).all():
                yield Site(node, (after,), {"scores": name, "free": free, "fill": value})


def _read_fill(graph: Graph, node: Node, parameter: str) -> np.floating | None:
    """Return the fill if it is one low number, whatever the size of its constant."""
    value = graph.parameter(node, parameter)
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or not value.size:
        return None
    fill: np.floating = value.reshape(-1)[0]
    return fill if fill <= _LEAST and bool((value == fill).all()) else None


def apply(graph: Graph, site: Site) -> None:
    (after,), out = site.others, site.node.outputs[0]
    build, scores, fill = Builder(graph, after), str(site.facts["scores"]), site.facts["fill"]
    assert isinstance(fill, np.floating)
    mask = build.const(np.where(np.asarray(site.facts["free"]), fill.dtype.type(0), fill), "mask")
    masked = build.op("add", {"x": scores, "y": mask}, graph.shape(out))
    graph.replace(after.outputs[0], copy_op(graph, after, after, {"x": [masked]}, graph.dtype(out)))
