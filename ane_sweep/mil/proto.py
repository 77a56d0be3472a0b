"""Load the protobuf classes of Core ML models without importing coremltools itself (their types: proto.pyi).

`import coremltools` takes seconds (it pulls in every converter and scikit-learn); its generated protobuf modules alone
take 0.03 s. They only import each other, relatively, so they load under any parent package: here a private one whose
search path is coremltools' own folder. Nothing named `coremltools` is put into sys.modules, so a real import works
before and after. protobuf keeps one descriptor pool a process: loading the same definitions twice is harmless, and
messages from here and from coremltools can be passed to each other.
"""

import importlib
import importlib.util
import sys
import types
from pathlib import Path

_PARENT = "ane_sweep.mil._coreml_proto"


def _load(name: str) -> types.ModuleType:
    if _PARENT not in sys.modules:
        spec = importlib.util.find_spec("coremltools")  # a top-level name: found without being imported
        if spec is None or not spec.submodule_search_locations:
            raise ImportError(
                "ane-sweep reads Core ML models with coremltools' protobuf classes: pip install coremltools"
            )
        parent = types.ModuleType(_PARENT)
        parent.__path__ = [str(Path(next(iter(spec.submodule_search_locations))) / "proto")]
        sys.modules[_PARENT] = parent
    return importlib.import_module(f"{_PARENT}.{name}")


Model_pb2 = _load("Model_pb2")
MIL_pb2 = _load("MIL_pb2")
FeatureTypes_pb2 = _load("FeatureTypes_pb2")
GLMRegressor_pb2 = _load("GLMRegressor_pb2")
NonMaximumSuppression_pb2 = _load("NonMaximumSuppression_pb2")
