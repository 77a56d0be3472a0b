"""Replace -infinity in masks by -30,000: 0 * -infinity is NaN, and so is the softmax of a row that is masked whole.

Converters make -infinity of finfo(fp32).min in fp16. The ops between the constant and softmax are copied with the other
number, so that the values that are compared are those of softmax.
"""

from collections.abc import Iterator
from copy import deepcopy

import numpy as np

from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.messages import rename_reads
from ane_sweep.fix.rewrite import ProgramRewrite, Site

_MASK = -30000.0  # two of them add up to a number that fp16 has
_BETWEEN = {
    "add": "xy", "mul": "xy", "select": "ab", "cast": "x", "expand_dims": "x", "squeeze": "x", "reshape": "x",
    "transpose": "x", "tile": "x", "slice_by_index": "x", "softmax": "x", "identity": "x",
}  # fmt: skip
_MOST = 1000  # ops from a mask to every softmax

REWRITE = ProgramRewrite(
    order=86,
    kind="accuracy",
    help="fp16 masks of -infinity, as finfo(fp32).min becomes, on their way to softmax -> -30,000",
    condition="factors of the mask are 0 or 1 and scores lie within 10,000 of 0; rows with a NaN before become numbers, "
    "which no comparison may read",
    bound=0.0,
    derivation="exp(-20,000) is 0 in fp32 and fp16, as exp(-infinity) is",
    source="apple/coremltools pull request 2669 (the converter's fault)",
    evidence="NaN from rows that are masked whole (pull request 2669, merged); where no row is NaN nothing is gained "
    "(CoreML-LLM: bitwise equal)",
    mends_nan=True,
)


def match(graph: Graph) -> Iterator[Site]:
    places = {node: place for place, node in enumerate(graph)}
    for node in graph.nodes("const"):
        if not graph.has_dtype(node.outputs[0], "fp16"):
            continue
        found = _follow(graph, node)
        value = graph.value(node.outputs[0]) if found else None
        if not found or not isinstance(value, np.ndarray) or not (value == -np.inf).any():
            continue
        has_empty_row = value.ndim > 0 and (value == -np.inf).all(-1).any()
        if not has_empty_row and not any(one.type in ("mul", "select") for one in found):
            continue
        ordered = sorted(found, key=places.__getitem__)
        made = {node.outputs[0], *(one.outputs[0] for one in found)}
        factors = [name for one in ordered if one.type == "mul" for name in one.names()]
        yield Site(ordered[0], (node, *ordered[1:]), masks=tuple(name for name in factors if name not in made))


def _follow(graph: Graph, node: Node) -> set[Node] | None:
    """Return the ops from a constant to every softmax that it reaches; None if it reaches another op, or an output."""
    found: set[Node] = set()
    left = [node]
    while left:
        name = left.pop().outputs[0]
        if graph.is_output(name) or len(found) > _MOST:
            return None
        for user in graph.users(name):
            sides = [side for side in _BETWEEN.get(user.type, "") if user.read(side) == name]
            is_tested = any(reader.type in ("equal", "not_equal") for reader in graph.users(user.outputs[0]))
            if len(sides) != 1 or is_tested or not graph.static(user.outputs[0]):
                return None  # a program that tests for NaN may make something else of it
            if user.type != "softmax" and user not in found:
                left.append(user)
            found.add(user)
    return found


def apply(graph: Graph, site: Site) -> None:
    constant, nodes = site.others[0], [site.node, *site.others[1:]]
    value = graph.value(constant.outputs[0])
    assert isinstance(value, np.ndarray)
    finite = Builder(graph, nodes[0]).const(np.where(value == -np.inf, np.float16(_MASK), value), "finite")
    copies = {constant.outputs[0]: finite}
    for node in nodes:
        _copy(graph, node, copies)
    for node in nodes:
        if node.type == "softmax":
            graph.replace(node.outputs[0], copies[node.outputs[0]])


def _copy(graph: Graph, node: Node, copies: dict[str, str]) -> None:
    """Add a copy of an op that reads the copies of its operands, and enter its output into `copies`."""
    proto = deepcopy(node.proto)
    rename_reads(proto, copies)
    made = graph.fresh_name(f"{node.outputs[0]}_finite")
    proto.outputs[0].name = copies[node.outputs[0]] = made
    graph.add(proto, node)
