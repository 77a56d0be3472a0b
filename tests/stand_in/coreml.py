"""Core ML with scripted answers, which a worker uses for coremltools' native module under ANE_SWEEP_STAND_IN.

Programs run for real, in the reference runtime; durations, placement and failures are the script's (__init__.py). A
scripted duration does not wait: `time.perf_counter` is set forward or held back by as much as the script wants, so that
all code that measures reads the scripted figure. `time.sleep` moves that clock too, and returns at once.
"""

import hashlib
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, SupportsIndex

from ane_sweep.coreml_anywhere import compiled, hook, native, plan
from tests.stand_in import Script

E5_CACHE = "Library/Caches/python/com.apple.e5rt.e5bundlecache"  # under CFFIXED_USER_HOME, else this task's TMPDIR
_SLEPT_S = 0.002

_real_counter, _real_counter_ns, _real_sleep = time.perf_counter, time.perf_counter_ns, time.sleep
_real_proxy, _real_cores = native._MLModelProxy, plan._MLNeuralEngineComputeDeviceProxy.get_total_core_count
_skew_ns = 0
_device = "local"
_restore: list[Callable[[], None]] = []
_used: Counter[int] = Counter()
_kept: list[bytearray] = []
_script: Script


def install(script: Script) -> None:
    """Put the scripted drop-in into coremltools, and the scripted clock into `time`."""
    global _script
    _script = script
    time.perf_counter = lambda: _counter_ns() / 1e9
    time.perf_counter_ns = _counter_ns
    time.sleep = _sleep
    native._MLModelProxy = ScriptedProxy  # type: ignore[misc]
    plan._MLNeuralEngineComputeDeviceProxy.get_total_core_count = _scripted_cores  # type: ignore[method-assign]
    hook.uninstall()  # the unscripted classes would stay in the modules that copied them
    hook.install(replace_native=True)


def patch_after_import(module: str, patch: Callable[[Any], Callable[[], None]]) -> None:
    """Patch a module now if it is loaded, or right after its import; `patch` returns a function that undoes it."""

    def reach() -> None:
        _restore.append(patch(sys.modules[module]))

    if module in sys.modules:
        reach()
    else:
        sys.meta_path.insert(0, finder := hook.AfterImport(module, reach))
        _restore.append(lambda: sys.meta_path.remove(finder))


@contextmanager
def on_device(name: str) -> Iterator[None]:
    """Direct the questions that are asked inside to this device."""
    global _device
    before, _device = _device, name
    try:
        yield
    finally:
        _device = before


def uninstall() -> None:
    """Put everything back; for tests, whose process goes on."""
    global _skew_ns
    while _restore:
        _restore.pop()()
    hook.uninstall()
    time.perf_counter, time.perf_counter_ns, time.sleep = _real_counter, _real_counter_ns, _real_sleep
    native._MLModelProxy = _real_proxy  # type: ignore[misc]
    plan._MLNeuralEngineComputeDeviceProxy.get_total_core_count = _real_cores  # type: ignore[method-assign]
    _skew_ns = 0
    _used.clear()
    _kept.clear()


class ScriptedProxy(_real_proxy):  # type: ignore[valid-type, misc]
    """The drop-in's model; the script is asked before each load, prediction, plan and compilation."""

    def __init__(
        self,
        path: str,
        compute_units: str,
        function_name: str = "",
        optimization_hints: dict[str, str] | None = None,
        asset: Any = None,
    ):
        folder = path or str(asset.folder)
        self._asked = {"units": plan.UNITS.get(compute_units), "program": Path(folder).stem, "function": function_name}
        entry = _cache_entry(folder, compute_units)
        answer = _ask("load", **self._asked, seen=entry.is_dir())
        with _take_time(answer) as took:
            super().__init__(path, compute_units, function_name, optimization_hints, asset)
        _leave_cache_entry(entry, answer)
        if took:
            self._loaded.load_ns = int(took[0] * 1e6)

    def predict(self, data: dict[str, Any], state: Any = None) -> dict[str, Any]:
        answer = _ask("predict", **self._asked)
        with _take_time(answer) as took:
            made = super().predict(data, state)
        if answer and (took or "native_ms" in answer):
            self._loaded.predict_ns = int(answer.get("native_ms", took[0] if took else 0) * 1e6)
        return made

    @staticmethod
    def compileModel(path: str) -> str:
        with _take_time(_ask("compile", program=Path(path).stem)):
            return _real_proxy.compileModel(path)

    @staticmethod
    def get_compute_plan(path: str, compute_units: str) -> Any:
        asked = {"units": plan.UNITS.get(compute_units), "program": Path(path).stem}
        answer = _ask("plan", **asked)
        spec = compiled.read(Path(path)).spec
        with _take_time(answer):
            proxy = ScriptedPlan(
                _predict_plan(path, spec, compute_units), plan.read_structure(spec), compute_units, asked
            )
        _leave_cache_entry(_cache_entry(path, compute_units), answer)
        from coremltools.models.compute_plan import MLComputePlan

        return MLComputePlan(proxy)

    @staticmethod
    def get_available_compute_devices() -> list[Any]:
        answer = _script.answer("devices") or {}
        return [plan.compute_devices()[name] for name in answer.get("list", plan.compute_devices())]

    get_all_compute_devices = get_available_compute_devices


class ScriptedPlan(plan._MLComputePlanProxy):
    """Our prediction of the plan, with the script's answers for single ops.

    Without a prediction (parts of a pipeline), every op runs on the last of the requested units.
    """

    kind = "scripted"

    def __init__(self, predicted: Any, model_structure: Any, units: str, asked: dict[str, Any]):
        self._predicted, self._structure, self._asked = predicted, model_structure, asked
        self._allowed = plan.ALLOWED[units]

    @property
    def model_structure(self) -> Any:
        return self._structure

    def _answer(self, operation: Any) -> dict[str, Any]:
        """Return the script's answer for an op, and nothing for a constant, which has no usage."""
        op = operation.operator_name.split(".")[-1]
        return {} if op.startswith("const") else _script.answer("plan", 1, device=_device, **self._asked, op=op) or {}

    def _usage(self, operation: Any) -> tuple[str | None, list[str]]:
        names = {id(device): name for name, device in plan.compute_devices().items()}
        if operation.operator_name.split(".")[-1].startswith("const"):
            return None, []
        if self._predicted is None:
            return self._allowed[-1], list(self._allowed)
        usage = self._predicted.get_compute_device_usage_for_mlprogram_operation(operation)
        if usage is None:
            return None, []
        supported = [names[id(device)] for device in usage.supported_compute_devices]
        return names[id(usage.preferred_compute_device)], supported

    def get_compute_device_usage_for_mlprogram_operation(self, operation: Any) -> Any:
        from coremltools.models.compute_plan import MLComputePlanDeviceUsage

        answer, (preferred, supported) = self._answer(operation), self._usage(operation)
        preferred, supported = answer.get("preferred", preferred), answer.get("supported", supported)
        if answer.get("plan") == "none" or preferred is None:
            return None
        known = plan.compute_devices()
        return MLComputePlanDeviceUsage(known[preferred], [known[name] for name in supported])

    def get_compute_device_usage_for_neuralnetwork_layer(self, layer: Any) -> None:
        return None

    def get_estimated_cost_for_mlprogram_operation(self, operation: Any) -> Any:
        from coremltools.models.compute_plan import MLComputePlanCost

        answer = self._answer(operation)
        if answer.get("plan") == "none" or operation.operator_name.split(".")[-1].startswith("const"):
            return None
        if "cost" in answer or self._predicted is None:
            return MLComputePlanCost(answer.get("cost", 0.01))
        return self._predicted.get_estimated_cost_for_mlprogram_operation(operation)


def _predict_plan(path: str, spec: Any, units: str) -> Any:
    """Return the drop-in's own plan of a program, or None for a pipeline, which it does not predict."""
    if spec.WhichOneof("Type") != "mlProgram":
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", plan.PredictionWarning)
        return _real_proxy.get_compute_plan(path, units).__proxy__


def _ask(on: str, **asked: Any) -> dict[str, Any] | None:
    """Return the script's answer, after its effects other than the time that it takes."""
    answer = _script.answer(on, _script.count_question(on), device=_device, **asked)
    if answer is not None:
        act(answer)
    return answer


def act(answer: dict[str, Any]) -> None:
    """Print text, take memory, hang, die or fail, as an answer says."""
    if text := answer.get("stderr"):
        sys.stderr.flush()
        os.write(2, (text.rstrip("\n") + "\n").encode())
    if size := answer.get("allocate_mib"):
        _kept.append(bytearray(b"x" * (size << 20)))
    while answer.get("hang"):
        _real_sleep(3600)
    if name := answer.get("signal"):
        os.kill(os.getpid(), getattr(signal, name))
    if text := answer.get("fail"):
        raise RuntimeError(text)


@contextmanager
def _take_time(answer: dict[str, Any] | None) -> Iterator[list[float]]:
    """Make the code inside take as long as the answer says, on the scripted clock. Yields those milliseconds, if any."""
    global _skew_ns
    took = [] if answer is None or "ms" not in answer else [_next_milliseconds(answer)]
    start = _real_counter_ns()
    yield took
    if took:
        _skew_ns += int(took[0] * 1e6) - (_real_counter_ns() - start)


def _next_milliseconds(answer: dict[str, Any]) -> float:
    times: float | list[float] = answer["ms"]
    if not isinstance(times, list):
        return times
    _used[id(answer)] += 1
    return times[min(_used[id(answer)], len(times)) - 1]


def _counter_ns() -> int:
    return _real_counter_ns() + _skew_ns


def _sleep(seconds: float | SupportsIndex) -> None:
    global _skew_ns
    start = _real_counter_ns()
    wanted = float(seconds)
    _real_sleep(min(wanted, _SLEPT_S))
    _skew_ns += max(0, int(wanted * 1e9) - (_real_counter_ns() - start))


def _scripted_cores(self: object) -> int:
    return int((_script.answer("devices") or {}).get("cores", 16))


def _cache_entry(folder: str, units: str) -> Path:
    """Return the folder of Core ML's cache for a model; a package, compiled anew at each load, gets a random one."""
    home = Path(os.environ.get("CFFIXED_USER_HOME") or tempfile.gettempdir())
    name = os.path.realpath(folder) if folder.endswith(".mlmodelc") else os.urandom(8).hex()
    key = hashlib.sha256(f"{name} {units}".encode()).hexdigest().upper()
    return home / E5_CACHE / str(_script.host.get("os_build", "24E248")) / key


def _leave_cache_entry(entry: Path, answer: dict[str, Any] | None) -> None:
    """Write the cache entry, with the analytics.mil and the compiled programs that the script names by relative path."""
    bundle = entry / f"{entry.name}.bundle" / "H16G.bundle"
    bundle.mkdir(parents=True, exist_ok=True)
    if answer and "analytics" in answer:
        shutil.copyfile(_script.path.parent / answer["analytics"], bundle / "analytics.mil")
    for name in (answer or {}).get("leaves", ()):
        (bundle / "main" / "main_ane").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_script.path.parent / name, bundle / "main" / "main_ane" / Path(name).name)
