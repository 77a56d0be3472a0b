"""Every call that we make into coremltools fits the installed version: names exist, arguments bind to signatures.

Our sources are read as syntax trees. Names bound by imports of coremltools (and by runtimes/_coremltools.import_coremltools) are
followed through attributes; methods of objects that we hold are listed below by file, as no syntax tells their class.
"""

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "ane_sweep"
REMOTE = "coremltools.models.ml_program.experimental"
# file -> method -> whose it is: "module:Class"; each call of that name in the file must fit all of them
METHODS = {
    "worker/runtimes/_probe.py": {"predict": ["coremltools.models.model:MLModel"]},
    "worker/runtimes/coreml.py": {
        "predict": ["coremltools.models.model:MLModel", "coremltools.models:CompiledMLModel"],
        "make_state": ["coremltools.models.model:MLModel", "coremltools.models:CompiledMLModel"],
        "get_load_duration_in_nano_seconds": ["ane_sweep.coreml_anywhere.native:_MLModelProxy"],
        "get_last_predict_duration_in_nano_seconds": ["ane_sweep.coreml_anywhere.native:_MLModelProxy"],
    },
    "worker/runtimes/_remote.py": {
        "load": [f"{REMOTE}.async_wrapper:RemoteMLModelAsyncWrapper"],
        "predict": [f"{REMOTE}.async_wrapper:RemoteMLModelAsyncWrapper"],
        "prepare_for_model_debugging": [f"{REMOTE}.remote_device:Device"],
    },
    "worker/programs/mlprogram/place.py": {
        "get_compute_device_usage_for_mlprogram_operation": ["coremltools.models.compute_plan:MLComputePlan"],
        "get_estimated_cost_for_mlprogram_operation": ["coremltools.models.compute_plan:MLComputePlan"],
    },
}
# file -> attributes that we read of coremltools' objects, and of which class
FIELDS = {
    "worker/runtimes/_probe.py": {"coremltools.models.compute_device:MLNeuralEngineComputeDevice": ["total_core_count"]},
    "worker/programs/mlprogram/place.py": {
        "coremltools.models.compute_plan:MLModelStructure": ["program", "pipeline"],
        "coremltools.models.compute_plan:MLModelStructurePipeline": ["sub_models"],
        "coremltools.models.compute_plan:MLModelStructureProgram": ["functions"],
        "coremltools.models.compute_plan:MLModelStructureProgramFunction": ["block"],
        "coremltools.models.compute_plan:MLModelStructureProgramBlock": ["operations"],
        "coremltools.models.compute_plan:MLModelStructureProgramOperation": ["operator_name", "outputs", "blocks"],
        "coremltools.models.compute_plan:MLComputePlanDeviceUsage": [
            "preferred_compute_device", "supported_compute_devices",
        ],
        "coremltools.models.compute_plan:MLComputePlanCost": ["weight"],
    },
    "worker/runtimes/_remote.py": {
        f"{REMOTE}.async_wrapper:RemoteMLModelAsyncWrapper": [
            "load_duration_in_nano_seconds", "last_predict_duration_in_nano_seconds",
        ],
        f"{REMOTE}.remote_device:Device": ["type", "os_version", "os_build_number"],
    },
}  # fmt: skip
# Written for several versions of coremltools on purpose: worker/programs/mlprogram/shortcuts.py looks before it touches anything.
_MISSING = object()


class Reader:
    """What one file's names mean, and what is wrong with its uses of them."""

    def __init__(self, path: Path, root: Path = PACKAGE):
        self.where = path.relative_to(root).as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.bound: dict[str, Any] = {}
        self.calls = 0
        self.problems: list[str] = []

    def read(self) -> "Reader":
        for node in ast.walk(self.tree):
            self._bind(node)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                found = self._lookup(node.value)
                if found is not None and found is not _MISSING:
                    self.bound[node.targets[0].id] = found
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                self._check(node)
            elif isinstance(node, ast.Attribute) and self._lookup(node) is _MISSING:
                self._say(node, f"coremltools has no {ast.unparse(node)}")
        return self

    def _say(self, node: Any, text: str) -> None:
        if (line := f"{self.where}:{node.lineno}: {text}") not in self.problems:
            self.problems.append(line)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "coremltools":
                    module = importlib.import_module(alias.name)
                    self.bound[alias.asname or "coremltools"] = module if alias.asname else _import("coremltools")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "coremltools":
            for alias in node.names:
                found = _import(f"{node.module}.{alias.name}")
                if found is _MISSING:
                    self._say(node, f"coremltools has no {node.module}.{alias.name}")
                else:
                    self.bound[alias.asname or alias.name] = found
        elif isinstance(node, ast.Assign) and ast.unparse(node.value) == "import_coremltools()":
            self.bound |= {ast.unparse(target): _import("coremltools") for target in node.targets}

    def _lookup(self, node: ast.AST) -> Any:
        """The object that a name or dotted name stands for; None when it is none of coremltools', _MISSING if absent."""
        if isinstance(node, ast.Name):
            return self.bound.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._lookup(node.value)
            if owner is None or owner is _MISSING:
                return owner
            if not (inspect.ismodule(owner) or inspect.isclass(owner)):
                return None
            found = getattr(owner, node.attr, _MISSING)
            return _import(f"{owner.__name__}.{node.attr}") if found is _MISSING and inspect.ismodule(owner) else found
        return None

    def _check(self, node: ast.Call) -> None:
        found = self._lookup(node.func)
        if found is not None and found is not _MISSING and callable(found):
            self._fits(node, found, bound=True)
        if isinstance(node.func, ast.Attribute):
            for owner in METHODS.get(self.where, {}).get(node.func.attr, []):
                method = getattr(_named(owner), node.func.attr, None)
                if method is None:
                    self._say(node, f"{owner} has no {node.func.attr}")
                else:
                    self._fits(node, method, bound=False)

    def _fits(self, node: ast.Call, found: Any, *, bound: bool) -> None:
        try:
            signature = inspect.signature(found)
        except (TypeError, ValueError):  # C code, protobuf messages
            return
        self.calls += 1
        loose = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
        args = [None] * sum(not isinstance(a, ast.Starred) for a in node.args)
        kwargs = {k.arg: None for k in node.keywords if k.arg is not None}
        try:
            (signature.bind_partial if loose else signature.bind)(*([] if bound else [None]), *args, **kwargs)
        except TypeError as error:
            self._say(node, f"{ast.unparse(node.func)}{signature} does not take this call: {error}")


def _import(name: str) -> Any:
    """A module or a module's attribute by its dotted name."""
    try:
        return importlib.import_module(name)
    except ImportError:
        module, _, attribute = name.rpartition(".")
        owner = importlib.import_module(module)
        return getattr(owner, attribute, _MISSING)


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


@pytest.fixture(scope="module")
def coremltools():
    return importlib.import_module("coremltools")


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "coremltools" in path.read_text(encoding="utf-8"))


def test_every_call_fits_the_installed_coremltools(coremltools):
    readers = [Reader(path).read() for path in sources()]
    assert [problem for reader in readers for problem in reader.problems] == []
    calls = {reader.where: reader.calls for reader in readers if reader.calls}
    assert sum(calls.values()) >= 40, "the walk has lost its way"
    assert {
        "worker/programs/mlprogram/convert.py",
        "worker/programs/mlprogram/place.py",
        "worker/programs/mlprogram/compile.py",
        "worker/runtimes/coreml.py",
    } <= calls.keys()


def test_fields_that_we_read_exist(coremltools):
    for fields in FIELDS.values():
        for owner, names in fields.items():
            cls = _named(owner)
            known = {*dir(cls), *getattr(cls, "__dataclass_fields__", {})}
            assert set(names) <= known, owner


def test_an_upgrade_that_breaks_us_is_told(coremltools, monkeypatch, tmp_path):
    def compile_model(model, target):
        raise AssertionError("never called")

    monkeypatch.setattr(coremltools.models.utils, "compile_model", compile_model)
    (problem,) = Reader(PACKAGE / "worker/programs/mlprogram/compile.py").read().problems
    assert "compile_model(model, target) does not take this call: " in problem and "mlprogram/compile.py:" in problem
    monkeypatch.delattr(coremltools.models.compute_plan.MLComputePlan, "load_from_path")
    (problem,) = Reader(PACKAGE / "worker/programs/mlprogram/place.py").read().problems
    assert problem.endswith("coremltools has no ct.models.compute_plan.MLComputePlan.load_from_path")
    (tmp_path / "gone.py").write_text("from coremltools.models import Nothing\nimport coremltools as ct\nct.cnvert()\n")
    told = Reader(tmp_path / "gone.py", tmp_path).read().problems
    assert told == [
        "gone.py:1: coremltools has no coremltools.models.Nothing",
        "gone.py:3: coremltools has no ct.cnvert",
    ]
