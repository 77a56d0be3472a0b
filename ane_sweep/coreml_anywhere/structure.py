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

    def named(values: Iterable[MIL_pb2.NamedValueType]) -> list[object]:
        kind = cp.MLModelStructureProgramValueType()
        return [cp.MLModelStructureProgramNamedValueType(value.name, kind) for value in values]

    def argument(proto: MIL_pb2.Argument) -> object:
        bindings = [
            cp.MLModelStructureProgramBinding(binding.name, None)
            if binding.WhichOneof("binding") == "name"
            else cp.MLModelStructureProgramBinding(None, cp.MLModelStructureProgramValue())
            for binding in proto.arguments
        ]
        return cp.MLModelStructureProgramArgument(bindings)

    def block(function: str, proto: MIL_pb2.Block) -> object:
        operations = []
        for one in proto.operations:
            inputs = {name: argument(value) for name, value in graph.in_order(one.inputs)}
            key = OperationKey(function, one.outputs[0].name if one.outputs else "")
            nested, proxy = (
                [block(function, inner) for inner in one.blocks],
                _MLModelStructureProgramOperationProxy(key),
            )
            operations.append(cp.MLModelStructureProgramOperation(inputs, one.type, named(one.outputs), nested, proxy))
        return cp.MLModelStructureProgramBlock(named(proto.inputs), operations, list(proto.outputs))

    kind = spec.WhichOneof("Type")
    if kind == "mlProgram":
        functions = {}
        for name, function in sorted(spec.mlProgram.functions.items()):
            body = block(name, function.block_specializations[function.opset])
            functions[name] = cp.MLModelStructureProgramFunction(named(function.inputs), body)
        return cp.MLModelStructure(None, cp.MLModelStructureProgram(functions), None)
    if kind in ("pipeline", "pipelineClassifier", "pipelineRegressor"):
        pipeline = spec.pipeline if kind == "pipeline" else getattr(spec, kind).pipeline
        names = list(pipeline.names) or [f"model{index}" for index in range(len(pipeline.models))]
        parts = [(name, read_structure(model)) for name, model in zip(names, pipeline.models)]
        return cp.MLModelStructure(None, None, cp.MLModelStructurePipeline(parts))
    return cp.MLModelStructure(None, None, None)
