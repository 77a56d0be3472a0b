"""The stand-in's Core AI: a plan of an asset whose units and reasons the script gives, under coreai-core's real classes.

Only what exists on macOS alone is replaced: SpecializationOptions' native part and AIModel.load, whose model carries the
debug records from which coreai-torch's own ComputePlan is read (its debugging/debug_info.py names the format). An answer
to `plan`, for an op and the element type that it gives, names the unit (`preferred`: ane, gpu, cpu; "none": no entry, as
of a fused op) and `why` not the Neural Engine; without an answer an op is on the CPU. An answer to `profile` gives the
`ms` of an op, each a group of its own; an op without one was not profiled.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from ane_sweep.machine.asset_ops import split_type
from tests.stand_in import Script, coreml

RESIDENCY = {"ane": "ANE", "gpu": "GPU"}
UNITS = {None: "all", "cpu": "cpu_only", "gpu": "cpu_and_gpu", "neural_engine": "cpu_and_ne"}


def install(script: Script) -> None:
    """Install the scripted plan beside the scripted Core ML."""

    def patch(runtime: ModuleType) -> Callable[[], None]:
        options, model = runtime.SpecializationOptions, runtime.AIModel

        class Options(options):  # type: ignore[misc, valid-type]
            def __init__(self, kind: str | None):
                self.kind = kind

            is_supported = staticmethod(lambda: True)
            default = classmethod(lambda cls: cls(None))
            cpu_only = classmethod(lambda cls: cls("cpu"))
            from_preferred_compute_unit_kind = classmethod(lambda cls, kind: cls(kind))

            def with_debug(self, *, enabled: bool) -> "Options":
                return self

        async def load(path: Any, options: Options | None = None) -> Any:
            return SimpleNamespace(
                _debug_infos=_write_records(script, Path(path), UNITS[options.kind if options else None])
            )

        before = model.__dict__["load"]
        runtime.SpecializationOptions = Options
        runtime.ComputeUnitKind = SimpleNamespace(gpu=lambda: "gpu", neural_engine=lambda: "neural_engine")
        model.load = staticmethod(load)

        def undo() -> None:
            runtime.SpecializationOptions, model.load = options, before
            del runtime.ComputeUnitKind

        return undo

    def patch_profiler(timing: ModuleType) -> Callable[[], None]:
        class Benchmarker(timing.CoreAIBenchmarker):  # type: ignore[misc, name-defined]
            async def benchmark(self, inputs: Any, num_runs: int = 1) -> Any:
                return _make_profile(script, self.coreai_program, num_runs)

        before = timing.CoreAIBenchmarker
        timing.CoreAIBenchmarker = Benchmarker

        def undo() -> None:
            timing.CoreAIBenchmarker = before

        return undo

    coreml.patch_after_import("coreai.runtime", patch)
    coreml.patch_after_import("coreai_torch.debugging.timing_diff", patch_profiler)


def _make_profile(script: Script, program: Any, runs: int) -> Any:
    from coreai_torch.debugging.benchmarker import BenchmarkResult, Measurement, OperationTiming

    timings = []
    for number, op in _number_ops(program):
        if answer := script.answer("profile", op=op.name.split(".")[-1], type=_name_type(op)):
            timings.append(OperationTiming([number], [op], Measurement.from_samples([answer["ms"]] * runs), number))
    return BenchmarkResult(timings)


def _number_ops(program: Any) -> Iterator[tuple[int, Any]]:
    from coreai_torch.debugging.debug_info import get_operation_id
    from coreai_torch.debugging.utils import _walk_operations

    for op in _walk_operations(program):
        if (number := get_operation_id(op)) is not None:
            yield number, op


def _name_type(op: Any) -> str:
    return split_type(str(op.results[0].type))[1] if op.results else ""


def _write_records(script: Script, path: Path, units: str) -> bytes:
    from coreai.authoring import AIModelAsset

    fallback, delegated = [], []
    for number, op in _number_ops(AIModelAsset.load(path).program):
        answer = script.answer("plan", units=units, op=op.name.split(".")[-1], type=_name_type(op)) or {}
        if (unit := answer.get("preferred", "cpu")) == "none":
            continue
        about = [
            _pair("op_id", {"dictionary": {"_0": {"type": _text("coreai"), "value": {"integer": {"_0": number}}}}})
        ]
        fallback.append({"odixId": number, "name": op.name, "metadatas": about})
        if unit in RESIDENCY:
            said = [_pair("ane_validation_message", _text(answer["why"]))] if "why" in answer else []
            about = [*about, _pair("residency", _text(RESIDENCY[unit])), *said]
            delegated.append({"odixId": number, "name": op.name, "metadatas": about})
    records = [{"identifier": "odix", "operations": fallback}, {"identifier": "mps_graph", "operations": delegated}]
    return json.dumps(records).encode()


def _pair(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "value": value}


def _text(text: str) -> dict[str, Any]:
    return {"string": {"_0": text}}
