"""MLModelStructure: the ops of a compiled model as coremltools' own dataclasses.

Core ML gives no values and no types there, only their presence; nor do we. Each operation carries an `OperationKey`, with
which later answers find it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ane_sweep.mil import graph


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


def read_structure(spec: Any) -> Any:
    """Return the MLModelStructure of a model; pipelines hold the structures of their parts, other kinds None."""
    from coremltools.models import compute_plan as cp

    kind = spec.WhichOneof("Type")
    if kind == "mlProgram":
        functions = {name: _function(name, function) for name, function in sorted(spec.mlProgram.functions.items())}
        return cp.MLModelStructure(None, cp.MLModelStructureProgram(functions), None)
    if kind in ("pipeline", "pipelineClassifier", "pipelineRegressor"):
        pipeline = spec.pipeline if kind == "pipeline" else getattr(spec, kind).pipeline
        names = list(pipeline.names) or [f"model{index}" for index in range(len(pipeline.models))]
        parts = [(name, read_structure(model)) for name, model in zip(names, pipeline.models)]
        return cp.MLModelStructure(None, None, cp.MLModelStructurePipeline(parts))
    return cp.MLModelStructure(None, None, None)


def _function(name: str, function: Any) -> Any:
    from coremltools.models import compute_plan as cp

    block = function.block_specializations[function.opset]
    return cp.MLModelStructureProgramFunction(_named(function.inputs), _block(name, block))


def _block(function: str, block: Any) -> Any:
    from coremltools.models import compute_plan as cp

    operations = [_operation(function, proto) for proto in block.operations]
    return cp.MLModelStructureProgramBlock(_named(block.inputs), operations, list(block.outputs))


def _operation(function: str, proto: Any) -> Any:
    from coremltools.models import compute_plan as cp

    inputs = {name: _argument(argument) for name, argument in graph.in_order(proto.inputs)}
    key = OperationKey(function, proto.outputs[0].name if proto.outputs else "")
    return cp.MLModelStructureProgramOperation(
        inputs,
        proto.type,
        _named(proto.outputs),
        [_block(function, inner) for inner in proto.blocks],
        _MLModelStructureProgramOperationProxy(key),
    )


def _argument(argument: Any) -> Any:
    from coremltools.models import compute_plan as cp

    bindings = [
        cp.MLModelStructureProgramBinding(binding.name, None)
        if binding.WhichOneof("binding") == "name"
        else cp.MLModelStructureProgramBinding(None, cp.MLModelStructureProgramValue())
        for binding in argument.arguments
    ]
    return cp.MLModelStructureProgramArgument(bindings)


def _named(values: Iterable[Any]) -> list[Any]:
    from coremltools.models import compute_plan as cp

    return [
        cp.MLModelStructureProgramNamedValueType(value.name, cp.MLModelStructureProgramValueType()) for value in values
    ]
