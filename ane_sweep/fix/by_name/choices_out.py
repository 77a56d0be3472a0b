"""Return the scores instead of what top-k, arg-max or a sort makes of them at the end of the program."""

from collections.abc import Sequence

from ane_sweep.fix.functions import open_functions, opset_number, replace_outputs
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.interface import Change, InterfaceRewrite, Run
from ane_sweep.mil.package import Package

REWRITE = InterfaceRewrite(
    order=40,
    help="top-k, arg-max, arg-min or argsort whose results are outputs -> the scores as an output",
    host="it takes the top-k or the arg-max of the scores",
    condition="only casts and changes of shape follow; scores in fp16 need CoreML6. Among equal scores the host may choose another",
    source="john-rocky/coreai-model-zoo notes (coreai-ane-partition-cost); CoreML-LLM's rejected approaches (arg-max in the graph)",
    evidence="3.06 -> 1.32 ms (Core AI), arg-max in the graph cost 2 ms, both reported; here predicted only",
)

_CHOICES = ("topk", "reduce_argmax", "reduce_argmin", "argsort")
_PLAIN = {"cast", "squeeze", "expand_dims", "reshape", "identity"}
_HALF_OPSET = 6  # the first with fp16 outputs


def find(graphs: Sequence[Graph]) -> list[str]:
    return list({out: None for graph in graphs for out in _find_choices(graph)})


def change(package: Package, sizes: str) -> Change:
    runs, scores = [], dict[str, None]()
    for name, graph in open_functions(package).items():
        found = _find_choices(graph)
        tail = {id(node): node for _, nodes in found.values() for node in nodes}
        ops = [type(node.proto).FromString(node.proto.SerializeToString()) for node in graph if id(node) in tail]
        new = {out: x for out, (x, _) in found.items()}
        scores |= dict.fromkeys(new.values())
        replace_outputs(package, name, graph, new)
        runs.append(Run(name, name, tail=ops))
    return Change(package, f"the scores are the outputs {', '.join(scores)}", runs)


def _find_choices(graph: Graph) -> dict[str, tuple[str, list[Node]]]:
    """Return the outputs that only a choice among scores makes: the scores, and the ops from these to the output."""
    found: dict[str, tuple[str, list[Node]]] = {}
    for node in graph.nodes(*_CHOICES):
        x, nodes = node.read("x"), _list_tail(graph, node)
        outputs = [name for one in nodes for name in one.outputs if graph.is_output(name)]
        if x is None or x in graph.inputs or not graph.static(x) or not outputs:
            continue
        if graph.dtype(x) == "fp32" or opset_number(graph.program.function) >= _HALF_OPSET:
            found |= dict.fromkeys(outputs, (x, nodes))
    return found


def _list_tail(graph: Graph, node: Node) -> list[Node]:
    """Return an op and those after it, if they only cast and reshape its results; else nothing."""
    found = [node]
    for one in found:
        found += [user for name in one.outputs for user in graph.users(name) if user not in found]
    return found if all(one.type in _PLAIN for one in found[1:]) else []
