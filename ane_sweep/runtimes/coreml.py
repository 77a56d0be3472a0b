"""coreml: Core ML itself, through coremltools, on macOS. Not yet run by us on a Mac: only its calls are checked on
Linux.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep import stand_in
from ane_sweep.errors import Unavailable

if TYPE_CHECKING:
    import numpy as np

HONOURS = frozenset({"chunks", "compute_units", "precision", "target"})
NEEDS = "program"
# our words -> members of coremltools.ComputeUnit
COMPUTE_UNITS = {"all": "ALL", "cpu_only": "CPU_ONLY", "cpu_and_gpu": "CPU_AND_GPU", "cpu_and_ne": "CPU_AND_NE"}


def available() -> str | None:
    return None if sys.platform == "darwin" or stand_in.active() else "needs macOS"


class CoreMLRuntime:
    """A chain of models on the given compute units; tensors are handed over by name.

    `realised["compute_units"]` is what Core ML was allowed to use; where it really ran is for the placement stage to
    say.
    """

    def __init__(self, paths: list[Path], compute_units: str):
        from ane_sweep.mil import chain
        from ane_sweep.runtimes._coremltools import lean

        ct = lean()

        units = ct.ComputeUnit[COMPUTE_UNITS[compute_units]]
        self._models = [ct.models.MLModel(str(path), compute_units=units) for path in paths]
        specs = [model.get_spec() for model in self._models]
        self._takes = [[feature.name for feature in spec.description.input] for spec in specs]
        self._outputs = list(chain.outputs(specs, paths[0].parent))
        self.realised: dict[str, Any] = {
            "runtime": "coreml",
            "numerics": "Core ML",
            "threads": None,
            "compute_units": compute_units,
            "chunks": len(paths),
        }

    def predict(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Outputs by name, as Core ML gives them."""
        values = dict(inputs)
        for model, names in zip(self._models, self._takes):
            values.update(model.predict({name: values[name] for name in names if name in values}))
        return {name: values[name] for name in self._outputs}


def load(params: dict[str, Any], inputs: dict[str, Path]) -> CoreMLRuntime:
    """Load the programs in `inputs["program"]`. Raises errors.Unavailable off macOS, errors.PackageError."""
    reason = available()
    if reason:
        raise Unavailable(f"runtime=coreml {reason}; runtime=reference executes the same programs on this host")
    from ane_sweep.mil import package

    return CoreMLRuntime(package.program_paths(inputs["program"]), params.get("compute_units") or "all")
