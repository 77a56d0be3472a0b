"""Compute once what several ops compute from the same values: later ops with equal inputs give way to the first."""

from collections.abc import Iterator

from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.messages import has_effect
from ane_sweep.fix.rewrite import ProgramRewrite, Site
from ane_sweep.mil.proto import MIL_pb2

_MOST_BYTES = 256  # of a small constant, which is compared by its numbers; others by their place in the weight file
_NEVER = ("const", "constexpr_", "random_", "read_state", "identity")  # beginnings of types; identities return inputs

REWRITE = ProgramRewrite(
    order=22,
    kind="placement",
    help="ops of one type with equal inputs -> the first of them",
    condition="always, but for ops that draw random numbers, touch states, hold blocks, or return a result of the function",
    bound=0.0,
    derivation="the same op on the same values",
    source="FluidInference/mobius, ANE_Candidates notes: work that no layer changes is hoisted out of the layers",
    evidence="17 -> 9.6 ms for a whole model with other changes, reported there; here predicted only",
)


def match(graph: Graph) -> Iterator[Site]:
    first: dict[tuple[object, ...], Node] = {}
    leaders: dict[str, str] = {}
    for node in graph:
        if node.type.startswith(_NEVER) or node.proto.blocks or has_effect(node.proto):
            continue
        found = first.setdefault(_sign(graph, node, leaders), node)
        if found is not node and not any(graph.is_output(name) for name in node.outputs):
            leaders.update(zip(node.outputs, found.outputs))
            yield Site(node, others=(found,), facts={"first": found})


def _sign(graph: Graph, node: Node, leaders: dict[str, str]) -> tuple[object, ...]:
    """Return the type, outputs' types and inputs of an op; equal ones compute the same."""
    given = node.proto.inputs
    inputs = [
        (
            key,
            *(_sign_input(graph, one.name, leaders) if one.name else _pack(one.value) for one in given[key].arguments),
        )
        for key in sorted(given)
    ]
    return (node.type, *(_pack(value.type) for value in node.proto.outputs), *inputs)


def _sign_input(graph: Graph, name: str, leaders: dict[str, str]) -> object:
    value = graph.message(name)
    is_small = value is not None and (value.HasField("blobFileValue") or value.ByteSize() <= _MOST_BYTES)
    return _pack(value) if value is not None and is_small else leaders.get(name, name)


def _pack(message: MIL_pb2.Value | MIL_pb2.ValueType) -> bytes:
    return message.SerializeToString(deterministic=True)


def apply(graph: Graph, site: Site) -> None:
    first = site.facts["first"]
    assert isinstance(first, Node)
    for old, new in zip(site.node.outputs, first.outputs):
        graph.replace(old, new)
