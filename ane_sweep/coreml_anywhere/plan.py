"""MLComputeDevice, MLModelStructure and MLComputePlan: coremltools' own objects, filled without Core ML.

The devices are those of the Apple chip that placement is predicted for; `MLComputeDevice` objects compare by identity in
coremltools, so there is one of each. Core ML gives no values and no types in a structure, only their presence; nor do we. Each
operation carries an `OperationKey`, with which later answers find it.

A plan comes from our placement prediction, and every answer is marked as one: its `__proxy__` has `kind` ("predicted"), `chip`
and `source`, and making it warns with `PredictionWarning`. Shares of cost are of our estimate of each op's time, on the unit it
is expected to run on.
"""

import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ane_sweep.coreml_anywhere import compiled
from ane_sweep.mil import graph
from ane_sweep.mil.proto import MIL_pb2, Model_pb2

if TYPE_CHECKING:
    from ane_sweep.placement.rows import OpRow

CHIP = "m4"  # the chip that the rules were checked on
UNITS = {"ALL": "all", "CPU_ONLY": "cpu_only", "CPU_AND_GPU": "cpu_and_gpu", "CPU_AND_NE": "cpu_and_ne"}


class _MLCPUComputeDeviceProxy:
    pass


class _MLGPUComputeDeviceProxy:
    pass


class _MLNeuralEngineComputeDeviceProxy:
    def get_total_core_count(self) -> int:
        """Return the number of cores of the Neural Engine: 16 from M1 to M5, except the Ultras (Apple's specifications)."""
        return 16


@cache
def compute_devices() -> dict[str, object]:
    """Return coremltools' own objects for "cpu", "gpu" and "ane"."""
    from coremltools.models import compute_device

    return {
        "cpu": compute_device.MLCPUComputeDevice(_MLCPUComputeDeviceProxy()),
        "gpu": compute_device.MLGPUComputeDevice(_MLGPUComputeDeviceProxy()),
        "ane": compute_device.MLNeuralEngineComputeDevice(_MLNeuralEngineComputeDeviceProxy()),
    }


# compute_units by the name of coremltools' enum -> devices that Core ML may use
ALLOWED = {
    "CPU_ONLY": ("cpu",),
    "CPU_AND_GPU": ("cpu", "gpu"),
    "CPU_AND_NE": ("cpu", "ane"),
    "ALL": ("cpu", "gpu", "ane"),
}


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
            nested = [block(function, inner) for inner in one.blocks]
            proxy = _MLModelStructureProgramOperationProxy(key)
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


class PredictionWarning(UserWarning):
    """Warns that an answer is a prediction, whereas on a Mac Core ML gives it."""


class Operation(Protocol):
    """An operation of coremltools' MLModelStructure, with the fields that `structure` sets."""

    __proxy__: object


class _MLComputePlanProxy:
    """The base class that coremltools subclasses for its remote devices; the local one is `PredictedPlan`."""


class PredictedPlan(_MLComputePlanProxy):
    """A plan made from predictions: `rows` maps (function, output) to rows of ane_sweep.placement; constants have none."""

    kind = "predicted"

    def __init__(self, spec: Model_pb2.Model, rows: "dict[OperationKey, OpRow]", compute_units: str, chip: str):
        self._structure, self._rows = read_structure(spec), rows
        self._allowed = ALLOWED[compute_units]
        self._total_ms: dict[str, float] = defaultdict(float)
        for key, row in rows.items():
            self._total_ms[key.function] += row.ms
        self.chip, self.source = chip, "ane_sweep.placement: rules and a cost model, no device was asked"

    @property
    def model_structure(self) -> object:
        return self._structure

    def get_compute_device_usage_for_mlprogram_operation(self, operation: Operation) -> object:
        """Return preferred and supported devices, or None for constants and for ops of another model."""
        from coremltools.models.compute_plan import MLComputePlanDeviceUsage

        row = self._row(operation)
        if row is None:
            return None
        devices = compute_devices()
        supported = [devices[unit] for unit in self._allowed if unit in row.verdict.supported]
        preferred = row.preferred if row.preferred in self._allowed else "cpu"
        return MLComputePlanDeviceUsage(devices[preferred], supported)

    def get_compute_device_usage_for_neuralnetwork_layer(self, layer: object) -> None:
        """Return None: neural networks of the old format are not predicted."""
        return None

    def get_estimated_cost_for_mlprogram_operation(self, operation: Operation) -> object:
        from coremltools.models.compute_plan import MLComputePlanCost

        row = self._row(operation)
        if row is None:
            return None
        total = self._total_ms[row.site.function]
        return MLComputePlanCost(row.ms / total if total else 0.0)

    def _row(self, operation: Operation) -> "OpRow | None":
        key = getattr(operation.__proxy__, "key", None)
        return None if key is None else self._rows.get(key)


def make_compute_plan(path: Path, compute_units: str) -> object:
    """Return the MLComputePlan of a compiled model for the chip `CHIP`. Raises RuntimeError if it cannot be predicted."""
    from coremltools.models.compute_plan import MLComputePlan

    package = compiled.read(path)
    kind = package.spec.WhichOneof("Type")
    if kind != "mlProgram":
        raise RuntimeError(f"{path}: holds a {kind}; where ops run is predicted for ML Programs alone")
    try:
        from ane_sweep.machine.calibrated import find_measurements
        from ane_sweep.placement import chips, predict, programs
    except ImportError as error:
        raise RuntimeError(
            f"MLComputePlan needs ane_sweep.placement, which predicts where ops run and is not here ({error})"
        ) from error
    chip = chips.get(CHIP, find_measurements)
    prediction = predict.predict_chain([programs.describe_package(package)], chip, UNITS[compute_units])
    rows = {OperationKey(row.site.function, row.site.name): row for row in prediction.rows}
    warnings.warn(
        f"this compute plan is predicted for {CHIP} by ane_sweep.placement; Core ML was not asked",
        PredictionWarning,
        stacklevel=2,
    )
    return MLComputePlan(PredictedPlan(package.spec, rows, compute_units, CHIP))
