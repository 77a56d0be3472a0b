"""An import hook that hides from coremltools the frameworks whose converters are not used here.

coremltools 9.0 imports scikit-learn, xgboost, libsvm and tensorflow if it finds them, and else switches off those
converters alone (its flags in `_deps`). They are hidden from coremltools only, and only until it is loaded; every other
import of them works. With scikit-learn come pandas, joblib and scipy.stats: 1.1 of 3.6 s of CPU and 100 MiB of a
process that imports coremltools (measured, Linux).
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

UNUSED = frozenset({"sklearn", "xgboost", "libsvm", "tensorflow"})
_IMPORTER = "coremltools"


class _Refusal(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        # the flag that importlib itself reads (`_bootstrap._find_and_load`); a Python that keeps it elsewhere imports everything
        if name in UNUSED and getattr(getattr(sys.modules.get(_IMPORTER), "__spec__", None), "_initializing", False):
            raise ModuleNotFoundError(f"{name} is not loaded for {_IMPORTER}: nothing here uses it", name=name)


def skip_unused() -> None:
    """Install the hook in this process. A second call changes nothing."""
    if not any(isinstance(finder, _Refusal) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Refusal())
