"""MLModelStructure: the ops of a compiled model as coremltools' own dataclasses.

Core ML gives no values and no types there, only their presence; nor do we. Each operation carries an `OperationKey`, with
which later answers find it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ane_sweep.mil import graph
from ane_sweep.mil.proto import MIL_pb2, Model_pb2


@dataclass(frozen=True)
class OperationKey:
    """The function and the first output of an operation, which identify it."""

    function: str
    output: str


class _MLModelStructureProgramOperationProxy:
    def __init__(self, key: OperationKey):
        self.key = key


class _MLModelStructureNeuralNetworkLayerProxy:
    pass


def read_structure(spec: Model_pb2.Model) -> object:
    """Return the MLModelStructure of a model; pipelines hold the structures of their parts, other kinds None."""
    from coremltools.models import compute_plan as cp

    kind = spec.WhichOneof("Type")
    if kind == "mlProgram":
        functions = {}
        for name, function in sorted(spec.mlProgram.functions.items()):
            block = _block(name, function.block_specializations[function.opset])
            functions[name] = cp.MLModelStructureProgramFunction(_named(function.inputs), block)
        return cp.MLModelStructure(None, cp.MLModelStructureProgram(functions), None)
    if kind in ("pipeline", "pipelineClassifier", "pipelineRegressor"):
        pipeline = spec.pipeline if kind == "pipeline" else getattr(spec, kind).pipeline
        names = list(pipeline.names) or [f"model{index}" for index in range(len(pipeline.models))]
        parts = [(name, read_structure(model)) for name, model in zip(names, pipeline.models)]
        return cp.MLModelStructure(None, None, cp.MLModelStructurePipeline(parts))
    return cp.MLModelStructure(None, None, None)


def _block(function: str, block: MIL_pb2.Block) -> object:
    from coremltools.models import compute_plan as cp

    operations = []
    for proto in block.operations:
        inputs = {name: _argument(argument) for name, argument in graph.in_order(proto.inputs)}
        proxy = _MLModelStructureProgramOperationProxy(
            OperationKey(function, proto.outputs[0].name if proto.outputs else "")
        )
        nested = [_block(function, inner) for inner in proto.blocks]
        outputs = _named(proto.outputs)
        operations.append(cp.MLModelStructureProgramOperation(inputs, proto.type, outputs, nested, proxy))
    return cp.MLModelStructureProgramBlock(_named(block.inputs), operations, list(block.outputs))


def _argument(argument: MIL_pb2.Argument) -> object:
    from coremltools.models import compute_plan as cp

    bindings = [
        cp.MLModelStructureProgramBinding(binding.name, None)
        if binding.WhichOneof("binding") == "name"
        else cp.MLModelStructureProgramBinding(None, cp.MLModelStructureProgramValue())
        for binding in argument.arguments
    ]
    return cp.MLModelStructureProgramArgument(bindings)


def _named(values: Iterable[MIL_pb2.NamedValueType]) -> list[object]:
    from coremltools.models import compute_plan as cp

    kind = cp.MLModelStructureProgramValueType()
    return [cp.MLModelStructureProgramNamedValueType(value.name, kind) for value in values]
