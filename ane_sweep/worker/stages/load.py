"""load: times the loading of a compiled program, cold and cached, each in a fresh process. macOS only.

params  compute_units, device, host; functions, if several functions of the program are run
inputs  program, compiled, reference (its first input is predicted)
leaves  load.json: both steps in full, helpers before and after

    cold    a package that this system has never seen (mil/identity.py), in a cache folder of its own
    cached  the same files again, in another process

The state of the cache is checked: `realised["load"]` has the number of entries that each step added to the e5 bundle
cache. CFFIXED_USER_HOME moves the cache: Core Foundation takes it for the home folder; a published study of an M4
forces fresh compilations that way. Compiling for the Neural Engine can take minutes to hours and 10 GB, or kill the
process:
see programs/mlprogram/steps.py. Stage latency times the calls after loading.
"""

import json
import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from ane_sweep.bridge import conversion, disk
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError, Unavailable
from ane_sweep.machine import apple, services
from ane_sweep.mil import identity, package
from ane_sweep.worker import params
from ane_sweep.worker.feeds.arrays import Inputs
from ane_sweep.worker.programs.mlprogram.compile import compile_one
from ane_sweep.worker.programs.mlprogram.steps import run_with_own_cache, stop_watching
from ane_sweep.worker.runtimes import coreml
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=100, many="loads", timeout_s=14400, base_gib=0.28, per_byte=1.3, base_s=10, per_gb_s=60,
    stored=False, artifact=True, alone=True, runs_program=True, on_coreml=True, compiles_for_ane=True,
)  # fmt: skip

E5_CACHE = "Library/Caches/*/com.apple.e5rt.e5bundlecache/*/*"  # <process>/.../<OS build>/<hash>


class Step(TypedDict):
    """The result of one step: milliseconds, peaks of Apple's services in bytes, and the state of the cache."""

    load_ms: list[float]
    load_native_ms: list[float | None]
    first_predict_ms: float
    first_predict_native_ms: float | None
    own_cache: str | None
    new_cache_entries: int
    helpers: dict[str, int]
    stderr: str
    seconds: float


Steps = dict[str, Step]


class Params(params.CoreMLParams, frozen=True):
    """Parameters of this stage; see the module's docstring."""

    functions: list[str] | None = None


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Load twice. Raises Unavailable off macOS, StageError if loading fails, Died if it killed the process."""
    Params.read(params)
    if reason := apple.no_coreml():
        raise Unavailable(reason)
    work = Path(tempfile.mkdtemp(prefix="load-"))
    home = work / "home"
    home.mkdir()
    before = list(map(asdict, services.rows()))
    folders, description = copy_afresh(inputs, work)
    request = {"params": params, "inputs": {"reference": str(inputs["reference"]), **folders}}
    steps: Steps = {}
    for name in ("cold", "cached"):
        entries = list_bundles(home)
        made = run_with_own_cache(__name__, "load_step", f"load ({name})", home, **request)
        made["new_cache_entries"] = len(list_bundles(home) - entries)
        steps[name] = conversion.convert(made, Step)
    realised = {name: describe_cache(name, steps, description) for name in steps}
    helpers = {"before": before, "after": list(map(asdict, services.rows()))}
    content = {"schema": 1, "steps": steps, "cache": realised, "helpers": helpers}
    (out / "load.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    return StageResult(_list_metrics(steps), {"load": realised, "ane_helpers": helpers})


def copy_afresh(inputs: dict[str, Path], work: Path) -> tuple[dict[str, str], str]:
    """Copy the programs under a new identity; return the folders {"program", "compiled"} and a description.

    If Core ML cannot compile such a copy, the compiled program is copied to a new place instead.
    """
    copies, compiled = work / "program", work / "compiled"
    copies.mkdir()
    compiled.mkdir()
    token = str(uuid.uuid4())
    try:
        for source in package.program_paths(inputs["program"]):
            if source.suffix == ".mlmodelc":
                raise StageError("it was given compiled")
            copy = identity.write_fresh_copy(source, copies / source.name, token)
            compile_one(copy, compiled / f"{source.stem}.mlmodelc", "coremltools")
    except StageError as error:
        disk.remove_tree(compiled)
        shutil.copytree(inputs["compiled"], compiled)
        folders = {"program": str(inputs["program"]), "compiled": str(compiled)}
        return folders, f"the compiled program in a new place (under a new identity: {error})"
    return {"program": str(copies), "compiled": str(compiled)}, "a new package"


class LoadRequest(params.Params, frozen=True):
    """The request of `load_step`: the task's params, and its inputs as paths."""

    params: dict[str, object]
    inputs: dict[str, str]


def load_step(request: dict[str, object]) -> dict[str, object]:
    """Load every program of the chain, and each of its functions, then predict once; runs in a process of its own."""
    task = LoadRequest.read(request)
    inputs = {role: Path(path) for role, path in task.inputs.items()}
    names: Sequence[str | None] = Params.read(task.params).functions or [None]
    loaded = [coreml.load({**task.params, "function": name}, inputs) for name in names]
    runtime = loaded[0]
    values = runtime.prepare(Inputs(inputs["reference"])[0])
    stop_watching(request)
    begun = time.perf_counter()
    runtime.predict(values)
    took = 1000 * (time.perf_counter() - begun)
    return {
        "load_ms": [ms for each in loaded for ms in each.load_ms],
        "load_native_ms": [ms for each in loaded for ms in each.load_native_ms],
        "first_predict_ms": took,
        "first_predict_native_ms": runtime.last_native_ms,
    }


def list_bundles(home: Path) -> set[str]:
    """List the entries of the e5 bundle cache under this home folder and the user's own, by path."""
    return {str(path) for root in (home, Path.home()) for path in root.glob(E5_CACHE) if path.is_dir()}


def describe_cache(name: str, steps: Steps, what: str) -> str:
    """Return a sentence on the state of the cache in a step, from the entries that the steps added."""
    new, own = steps[name]["new_cache_entries"], steps[name]["own_cache"] is None
    if name == "cold":
        where = "an empty cache" if own else "the user's own cache"
        if new:
            return f"cold: {what} in {where}; {new} entries were written"
        return f"cold by construction: {what} in {where}; no entry of the cache could be seen"
    if new:
        return f"not cached: loading the same files again wrote {new} more entries"
    if steps["cold"]["new_cache_entries"]:
        return "cached: the same files again, and no entry was added"
    return "the same files again; whether they were cached cannot be seen"


def _list_metrics(steps: Steps) -> list[Metric]:
    cold, cached = steps["cold"], steps["cached"]
    figures = {
        "load_cold_ms": sum(cold["load_ms"]),
        "load_cached_ms": sum(cached["load_ms"]),
        "first_predict_cold_ms": cold["first_predict_ms"],
        "first_predict_ms": cached["first_predict_ms"],
    }
    metrics = [Metric(name, value, "ms", source="coreml") for name, value in figures.items()]
    if peak := max((step["helpers"].get("ANECompilerService", 0) for step in steps.values()), default=0):
        metrics.append(Metric("ane_compiler_peak_bytes", peak, "bytes", source="ps"))
    return metrics
