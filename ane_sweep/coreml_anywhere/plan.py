"""MLComputePlan from our placement prediction: Core ML is not asked, and every answer is marked as a prediction.

A plan's `__proxy__` has `kind` ("predicted"), `chip` and `source`; making one warns with `PredictionWarning`. Shares of
cost are of our estimate of each op's time, on the unit it is expected to run on.
"""

import warnings
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ane_sweep.coreml_anywhere import compiled, structure
from ane_sweep.coreml_anywhere.devices import ALLOWED, compute_devices
from ane_sweep.mil.proto import Model_pb2

if TYPE_CHECKING:
    from ane_sweep.placement.rows import OpRow

CHIP = "m4"  # the chip that the rules were checked on
UNITS = {"ALL": "all", "CPU_ONLY": "cpu_only", "CPU_AND_GPU": "cpu_and_gpu", "CPU_AND_NE": "cpu_and_ne"}


class PredictionWarning(UserWarning):
    """A warning that an answer is predicted, which on a Mac comes from Core ML."""


class Operation(Protocol):
    """An operation of coremltools' MLModelStructure, with what `structure` gave it."""

    __proxy__: object


class _MLComputePlanProxy:
    """The base class that coremltools subclasses for its remote devices; the local one is `PredictedPlan`."""


class PredictedPlan(_MLComputePlanProxy):
    """`rows` maps (function, output) to predicted rows of ane_sweep.placement; constants have none."""

    kind = "predicted"

    def __init__(
        self, spec: Model_pb2.Model, rows: "dict[structure.OperationKey, OpRow]", compute_units: str, chip: str
    ):
        self._structure, self._rows = structure.read_structure(spec), rows
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
    rows = {structure.OperationKey(row.site.function, row.site.name): row for row in prediction.rows}
    warnings.warn(
        f"this compute plan is predicted for {CHIP} by ane_sweep.placement; Core ML was not asked",
        PredictionWarning,
        stacklevel=2,
    )
    return MLComputePlan(PredictedPlan(package.spec, rows, compute_units, CHIP))
