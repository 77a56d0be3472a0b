"""Import coremltools without the frameworks that it converts from, in processes that only load, plan and predict.

coremltools 9.0 imports torch, transformers, scikit-learn, xgboost and tensorflow where they are installed, for its
converters. A process that predicts does not need them: without them, the import takes 0.6 s of CPU instead of 3.6
(measured, Linux), and the process is smaller by their memory, which would otherwise count as the model's. Frameworks
that were imported before stay, and all of them can be imported afterwards.
"""

import sys
from types import ModuleType
from typing import Any

from ane_sweep.worker.params import LoadHints

OPTIONAL = ("torch", "torchvision", "transformers", "sklearn", "xgboost", "libsvm", "tensorflow")


def import_coremltools() -> ModuleType:
    """Return coremltools, imported without the frameworks of `OPTIONAL`."""
    if "coremltools" not in sys.modules:
        hidden = [name for name in OPTIONAL if name not in sys.modules]
        modules: Any = sys.modules  # typeshed does not know that None means "not to be found"
        modules.update(dict.fromkeys(hidden))
        try:
            import coremltools  # noqa: F401
        finally:
            for name in hidden:
                sys.modules.pop(name, None)
    return sys.modules["coremltools"]


def build_hints(wanted: LoadHints) -> dict[str, object] | None:
    """Return coremltools' `optimization_hints`; None if all hints have their defaults."""
    ct = import_coremltools()
    hints: dict[str, object] = {}
    if wanted.reshape_frequency == "infrequent":
        hints["reshapeFrequency"] = ct.ReshapeFrequency.Infrequent
    if wanted.specialization == "fast_prediction":
        hints["specializationStrategy"] = ct.SpecializationStrategy.FastPrediction
    if wanted.low_precision_accumulation:
        hints["allowLowPrecisionAccumulationOnGPU"] = True
    return hints or None
