"""The pytest plugin inside a child process: the drop-in, the sample, seeds, and one line of JSON an item.

Configured by a file of JSON (`Settings`), which the environment variable ANE_SWEEP_UPSTREAM names. As a control the drop-in is left out and
every item ends, as skipped, where it first asks Core ML for something: what fails before that fails without us.
"""

import gc
import importlib
import importlib.machinery
import json
import os
import random
import shutil
import sys
import types
import zlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ane_sweep import coreml_anywhere
from tests.proof.upstream import tighten

VARIABLE = "ANE_SWEEP_UPSTREAM"
REACHED = "asked Core ML for something"  # how a control's skip is told from others


@dataclass
class Settings:
    """`sample` items of each function (None: all), drawn by `seed`; `only` and `done` are node ids to run and to skip."""

    results: str
    root: str
    sample: int | None = 1
    seed: int = 0
    precision: str = "fp16"
    shard: tuple[int, int] = (0, 1)
    control: bool = False
    only: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    def to_file(self, path: Path) -> dict[str, str]:
        """Write it; returns the variable that leads a child to it (node ids can be too many for a variable)."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return {VARIABLE: str(path)}

    @classmethod
    def of_child(cls) -> "Settings":
        return cls(**json.loads(Path(os.environ[VARIABLE]).read_text(encoding="utf-8")))


settings = Settings.of_child() if VARIABLE in os.environ else Settings("", "")
current: dict[str, Any] = {"models": [], "predicted": False}


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests() -> Iterator[None]:
    """Before coremltools' own conftest files: they import coremltools."""
    if VARIABLE not in os.environ:
        raise pytest.UsageError("this plugin is for `python -m tests.proof.upstream`")
    tighten.pretend_apple_silicon()
    if not settings.control:
        coreml_anywhere.install()
    with _torchvision():
        tighten.apply(settings.precision)
        if settings.control:
            _stop_at_core_ml()
        _watch_models()
        yield


def _watch_models() -> None:
    """Note which kinds of models an item builds, and whether it predicts."""
    from coremltools.models import model

    inner = model.MLModel._get_proxy_and_spec

    def get_proxy_and_spec(self: Any, *args: Any, **options: Any) -> Any:
        made = inner(self, *args, **options)
        current["models"].append(made[1].WhichOneof("Type"))
        return made

    model.MLModel._get_proxy_and_spec = get_proxy_and_spec
    if settings.control:
        return
    from ane_sweep.coreml_anywhere.native import _MLModelProxy

    for name in ("predict", "batchPredict"):
        setattr(_MLModelProxy, name, _noting(getattr(_MLModelProxy, name)))


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any, **options: Any) -> Any:
        current["predicted"] = True
        return function(*args, **options)

    return noted


def _stop_at_core_ml() -> None:
    from coremltools.models import _compiled_model, compute_plan, model, utils

    def stop(*args: Any, **options: Any) -> Any:
        pytest.skip(REACHED)

    for owner, names in {
        model.MLModel: ("predict", "make_state", "get_compiled_model_path", "get_available_compute_devices"),
        model.MLModelAsset: ("from_path", "from_memory"),
        _compiled_model.CompiledMLModel: ("__init__",),
        compute_plan.MLComputePlan: ("load_from_path",),
        compute_plan.MLModelStructure: ("load_from_path",),
        utils: ("compile_model",),
    }.items():
        for name in names:
            setattr(owner, name, stop)


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: Any) -> Iterator[None]:
    with _torchvision() if isinstance(collector, pytest.Module) else nullcontext():
        yield


@contextmanager
def _torchvision() -> Iterator[None]:
    """Without torchvision, an empty module of its name while test modules are read: some import it at the top, for one
    or two items of hundreds. Those items fail then, with and without the drop-in.
    """
    stub = not _importable("torchvision")
    if stub:
        module = sys.modules["torchvision"] = types.ModuleType("torchvision")
        module.__spec__ = importlib.machinery.ModuleSpec("torchvision", None)
        for name in ("datasets", "transforms"):
            setattr(module, name, types.ModuleType(f"torchvision.{name}"))
    try:
        yield
    finally:
        if stub:
            sys.modules.pop("torchvision", None)


@cache
def _importable(name: str) -> bool:
    """transformers asks the same once and remembers; it is to do so before the empty module is there."""
    try:
        importlib.import_module("transformers").utils.is_torchvision_available()
    except ImportError:
        pass
    try:
        importlib.import_module(name)
    except Exception:
        sys.modules.pop(name, None)
        return False
    return True


def node_of(item: Any) -> str:
    """Node id relative to coremltools' folder."""
    file = Path(item.path).relative_to(settings.root).as_posix()
    return "::".join([file, *item.nodeid.split("::")[1:]])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    tighten.pretend_macos()
    by_function = defaultdict(list)
    for item in items:
        by_function[node_of(item).partition("[")[0]].append(item)
    chosen: set[str] = set()
    for function, group in by_function.items():
        nodes = [node_of(item) for item in group]
        if settings.sample is not None and len(nodes) > settings.sample:
            nodes = random.Random(f"{settings.seed}:{function}").sample(nodes, settings.sample)
        chosen.update(nodes)
    if settings.only:
        chosen = set(settings.only)
    chosen -= set(settings.done)
    shard, shards = settings.shard
    items[:] = [
        item for item in items if node_of(item) in chosen and zlib.crc32(node_of(item).encode()) % shards == shard
    ]
    _write({"collected": len(items)})
    gc.freeze()  # coremltools collects garbage after each conversion: not among all that was imported, every time


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: Any, nextitem: Any) -> Iterator[None]:
    node = node_of(item)
    _seed(zlib.crc32(f"{settings.seed}:{node}".encode()))
    current.update(models=[], predicted=False)
    tighten.loosened.clear()
    _write({"start": node})
    yield
    if nextitem is None or nextitem.path != item.path:
        _clear_temporary()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" and report.outcome == "passed":
        return
    kind = {"passed": "xpassed", "skipped": "xfailed"}.get(report.outcome) if hasattr(report, "wasxfail") else None
    _write(
        {
            "node": node_of(item),
            "outcome": kind or report.outcome,
            "seconds": round(report.duration, 3),
            "models": sorted(set(map(str, current["models"]))),
            "predicted": current["predicted"],
            "loosened": bool(tighten.loosened),
            **_error(call, report),
        }
    )


def _error(call: Any, report: Any) -> dict[str, str]:
    if call.excinfo is None:
        return {}
    error = call.excinfo.value
    place = call.excinfo.traceback[-1] if len(call.excinfo.traceback) else None
    return {
        "error": type(error).__name__,
        "text": str(error)[:2000],
        "where": f"{Path(str(place.path)).name}:{place.lineno + 1}" if place is not None else "",
        "tail": "" if report.outcome == "skipped" else str(report.longrepr)[-4000:],
    }


def _seed(seed: int) -> None:
    """The data of an item depends on the seed and its own name, not on what ran before it."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def _clear_temporary() -> None:
    """coremltools 9.0 leaves a copy of each model's weights until the process ends: drop those of the file just done."""
    import tempfile

    for path in Path(tempfile.gettempdir()).glob("tmp*.mlpackage"):
        shutil.rmtree(path, ignore_errors=True)


def _write(line: dict[str, Any]) -> None:
    with open(settings.results, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
