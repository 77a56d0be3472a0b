"""Installation of the drop-in in coremltools, and its removal.

coremltools 9.0 finds its native module by the name `coremltools.libcoremlpython` in half a dozen modules, each with its
own copy of the classes (`from ..libcoremlpython import _MLModelProxy`, None where that failed). Before coremltools is
imported an entry in sys.modules is enough; afterwards those copies are overwritten as well. Four more names make
coremltools believe it is on a Mac, where it asks before states, hints, compiled models and compiling.
"""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from ane_sweep.coreml_anywhere import native
from ane_sweep.errors import Unavailable

NATIVE = "coremltools.libcoremlpython"
MACOS_VERSION = (15, 4)  # the newest on which coremltools 9.0 enables all that it has
# module -> functions that gate what the stand-in can do
GATES: dict[str, dict[str, Callable[[], object]]] = {
    "coremltools.models.model": {"_is_macos": lambda: True, "_macos_version": lambda: MACOS_VERSION},
    "coremltools.models._compiled_model": {"_macos_version": lambda: MACOS_VERSION},
    "coremltools.models.utils": {"_macos_version": lambda: MACOS_VERSION},
}
_ABSENT = object()
_undo: list[Callable[[], object]] = []  # what puts everything back, in reverse order


def install(*, numerics: str | None = None, replace_native: bool = False) -> ModuleType:
    """Make coremltools predict on this host; return the drop-in module. Calling it again is harmless.

    `numerics` of models loaded from now on: "fp16", "fp32", "ane" (see the package reference); None: as each declares.

    `replace_native` is for a Mac, to compare both: without it errors.Unavailable is raised if the real module exists.
    Models that are already loaded keep their runtime.
    """
    if installed():
        native.numerics = numerics
        return native
    real = _real_module()
    if real is not None and not replace_native:
        raise Unavailable(
            f"coremltools has its native module here ({real}), so models run in Core ML itself; "
            "install(replace_native=True) puts the reference runtime in its place, uninstall() takes it out again"
        )
    native.numerics = numerics
    before = sys.modules.get(NATIVE)
    _undo.append(lambda: sys.modules.update({NATIVE: before}) if before else sys.modules.pop(NATIVE, None))
    sys.modules[NATIVE] = native
    if "coremltools.models" in sys.modules:
        _replace_copies()
    else:
        finder = AfterImport("coremltools", _replace_copies)
        sys.meta_path.insert(0, finder)
        _undo.append(finder.remove)
    return native


def uninstall() -> None:
    """Restore coremltools. Models that were loaded in between still run."""
    while _undo:
        _undo.pop()()
    if "coremltools.models" in sys.modules:
        _restore_copies()


def installed() -> bool:
    return bool(_undo)


def _real_module() -> str | None:
    """Return the path of the real native module, if it is loaded or a file exists that would load on this host."""
    if (loaded := sys.modules.get(NATIVE)) is not None:
        return str(getattr(loaded, "__file__", None) or loaded.__name__)
    spec = importlib.util.find_spec("coremltools")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise ImportError("the drop-in stands in for a part of coremltools, which is not here: pip install coremltools")
    for folder in folders:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            if (file := Path(folder) / f"libcoremlpython{suffix}").exists():
                return str(file)
    return None


def _replace_copies() -> None:
    """Overwrite every copy of the classes in coremltools' modules."""
    for module in _loaded_modules():
        for proxy in native.__all__:
            if proxy in vars(module) and vars(module)[proxy] is not getattr(native, proxy):
                _set(module, proxy, getattr(native, proxy))
    if getattr(sys.modules["coremltools"], "libcoremlpython", None) is not native:
        _set(sys.modules["coremltools"], "libcoremlpython", native)
    for name in GATES.keys() & sys.modules.keys():
        for gate, answer in GATES[name].items():
            _set(sys.modules[name], gate, answer)


def _restore_copies() -> None:
    """Give the real classes, or None, to modules that were imported while the drop-in was installed."""
    try:
        real: ModuleType | None = importlib.import_module(NATIVE)
    except ImportError:
        real = None
    for module in _loaded_modules():
        for proxy in native.__all__:
            if vars(module).get(proxy) is getattr(native, proxy):
                setattr(module, proxy, getattr(real, proxy, None))
        if vars(module).get("libcoremlpython") is native:
            delattr(module, "libcoremlpython") if real is None else setattr(module, "libcoremlpython", real)


def _loaded_modules() -> list[ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if module is not None and name.partition(".")[0] == "coremltools" and name != NATIVE
    ]


def _set(module: ModuleType, name: str, value: object) -> None:
    before = vars(module).get(name, _ABSENT)
    _undo.append(lambda: delattr(module, name) if before is _ABSENT else setattr(module, name, before))
    setattr(module, name, value)


class AfterImport:
    """A finder that leaves the search to other finders, and calls `act` once the module `name` has been imported."""

    def __init__(self, name: str, act: Callable[[], None]):
        self.name, self.act = name, act

    def remove(self) -> None:
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in others if spec is not None), None)
        if spec is not None and spec.loader is not None:
            run, act = spec.loader.exec_module, self.act

            def exec_module(module: ModuleType) -> None:
                run(module)
                act()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
