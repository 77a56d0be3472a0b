"""Take embeddings as inputs instead of looking them up; the lookups become a function of their own."""

from collections.abc import Collection, Sequence

from ane_sweep.fix import functions
from ane_sweep.fix.functions import drop_dead, open_functions
from ane_sweep.fix.graph import Graph, Node
from ane_sweep.fix.interface import Change, InterfaceRewrite, Run
from ane_sweep.fix.patterns import number
from ane_sweep.mil.graph import view_op
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2, Model_pb2

REWRITE = InterfaceRewrite(
    order=50,
    help="rows of a constant table, looked up by an input -> the rows as an input; function `lookup` of the package makes them",
    host="it calls `lookup` first, and gives the program what it returns",
    condition="CoreML8, one function, known sizes; the indices come from inputs by casts, changes of shape and comparisons alone",
    source="john-rocky/CoreML-LLM docs; the advice of this project's rule gather_index (751K study: the Neural Engine refuses it)",
    evidence="predicted only",
)

_INDEX_OPS = {
    "cast", "squeeze", "expand_dims", "reshape", "identity", "add", "select", "greater_equal", "less", "maximum", "minimum",
}  # fmt: skip
_LOOKUP = "lookup"


def find(graphs: Sequence[Graph]) -> list[str]:
    if len(graphs) != 1 or functions.opset_number(graphs[0].program.function) < functions.OPSET:
        return []
    return [node.outputs[0] for node in _find_lookups(graphs[0])]


def change(package: Package, sizes: str) -> Change:
    ((name, graph),) = open_functions(package).items()
    rows = [node.outputs[0] for node in _find_lookups(graph)]
    described = [functions.describe_value(graph, row) for row in rows]
    lookup = _copy(graph.program.function)
    block = lookup.block_specializations[lookup.opset]
    del block.outputs[:]
    block.outputs.extend(rows)
    drop_dead(block)
    rest = _copy(graph.program.function)
    inner = rest.block_specializations[rest.opset]
    for place in reversed(range(len(inner.operations))):
        if inner.operations[place].outputs[0].name in rows:
            del inner.operations[place]
    for row in rows:
        rest.inputs.add(name=row).type.CopyFrom(graph.types[row])
    drop_dead(inner)
    parts = {}
    for key, function in ((name, rest), (_LOOKUP, lookup)):
        _drop_inputs(function)
        parts[key] = (function, _describe(package.spec, name, function, described))
    head = [op for op in block.operations if op.type != "const" and not op.type.startswith("constexpr_")]
    functions.set_functions(package.spec, parts, name)
    return Change(package, f"new inputs {', '.join(rows)}, made by function {_LOOKUP}", [Run(name, name, head=head)])


def _find_lookups(graph: Graph) -> list[Node]:
    """Return the gathers of rows of a constant by an index that follows from inputs."""
    return [
        node
        for node in graph.nodes("gather")
        if graph.is_constant(node.read("x"))
        and graph.static(node.outputs[0])
        and graph.dtype(node.outputs[0]) in ("fp16", "fp32")
        and number(graph, node, "axis", 0) == 0
        and number(graph, node, "batch_dims", 0) == 0
        and graph.users(node.outputs[0])
        and not graph.is_output(node.outputs[0])
        and not graph.is_constant(node.read("indices"))
        and _comes_from_inputs(graph, str(node.read("indices")))
    ]


def _comes_from_inputs(graph: Graph, name: str) -> bool:
    left = [name]
    while left:
        one = left.pop()
        maker = graph.maker(one)
        if maker is None or graph.is_constant(one):
            continue
        if maker.type not in _INDEX_OPS:
            return False
        left += sorted(maker.names())
    return True


def _copy(function: MIL_pb2.Function) -> MIL_pb2.Function:
    made = MIL_pb2.Function()
    made.CopyFrom(function)
    return made


def _drop_inputs(function: MIL_pb2.Function) -> None:
    """Remove the inputs that nothing reads."""
    block = function.block_specializations[function.opset]
    read = set(block.outputs).union(*(view_op(0, proto).reads for proto in block.operations))
    for place in reversed(range(len(function.inputs))):
        if function.inputs[place].name not in read:
            del function.inputs[place]


def _describe(
    spec: Model_pb2.Model, name: str, function: MIL_pb2.Function, rows: Collection[Model_pb2.FeatureDescription]
) -> Model_pb2.FunctionDescription:
    """Return the description of a part of a function: its features, and the rows where it has them."""
    source, made = functions.describe_function(spec, name), Model_pb2.FunctionDescription()
    inputs = {value.name for value in function.inputs}
    outputs = set(function.block_specializations[function.opset].outputs)
    made.input.extend([one for one in (*source.input, *rows) if one.name in inputs])
    made.state.extend([one for one in source.state if one.name in inputs])
    made.output.extend([one for one in (*source.output, *rows) if one.name in outputs])
    return made
