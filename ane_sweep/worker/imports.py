"""What coremltools imports for converters that nobody calls here: refused while it is being imported itself.

coremltools 9.0 asks for scikit-learn, xgboost, libsvm and tensorflow, and does without where they are missing: its own
flags (`_deps`) then switch off those converters alone. So to it, and only until it is loaded, they are missing; whoever
else wants one, before or after, gets it. With scikit-learn come pandas, joblib and scipy.stats: 1.1 of 3.6 s of CPU and
100 MiB of a process that imports coremltools (measured, Linux).
"""

import sys
from importlib.abc import MetaPathFinder
from typing import Any

UNUSED = frozenset({"sklearn", "xgboost", "libsvm", "tensorflow"})
_WHO = "coremltools"


class _Refusal(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name in UNUSED and _is_being_imported(_WHO):
            raise ModuleNotFoundError(f"{name} is not loaded for {_WHO}: nothing here uses it", name=name)
        return None


def _is_being_imported(name: str) -> bool:
    """As importlib itself asks it (`_bootstrap._find_and_load`); a Python that says it elsewhere imports all, slower."""
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


def skip_unused() -> None:
    """From now on, in this process. Calling it again changes nothing."""
    if not any(isinstance(finder, _Refusal) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refusal())
