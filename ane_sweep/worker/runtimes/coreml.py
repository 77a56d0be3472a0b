"""coreml: Core ML through coremltools, on macOS. We have not yet run it on a Mac: tests run it on Linux through the
stand-in, and check its calls against coremltools' signatures.
"""

import time
from pathlib import Path
from typing import Any

import msgspec

from ane_sweep.bridge.runtimes import Traits
from ane_sweep.errors import PackageError, StageError, Unavailable
from ane_sweep.machine import apple
from ane_sweep.mil import package
from ane_sweep.worker.params import NO_HINTS, CoreMLParams, LoadHints
from ane_sweep.worker.runtimes._chain import COMPUTE_UNITS, Chain, to_bindable, to_picture
from ane_sweep.worker.runtimes._coremltools import build_hints, import_coremltools
from ane_sweep.worker.runtimes._remote import RemoteRuntime
from ane_sweep.worker.runtimes._runtime import Arrays, Runtime

RUNTIME = Traits(
    needs="program", measured="Core ML on {chip}", hardware="Apple",
    honours=("chunks", "compute_units", "precision", "target", "compiler", "device", "hints"),
    auto=1, coreml=True, alone=True, idle_s=2.0, cannot="ane_sweep.machine.apple:no_coreml",
)  # fmt: skip


class FunctionParams(CoreMLParams, frozen=True):
    """Parameters of this runtime: those of Core ML, its load hints, and the function for a program with several."""

    options: LoadHints = NO_HINTS
    function: str | None = None


class CoreMLRuntime(Runtime):
    """A chain of models, or one pipeline, on the given compute units; tensors pass between them by name.

    programs  packages, in order; compiled: the .mlmodelc of each, or None to let Core ML compile the packages itself
    function  the function of multifunction programs; None: the default one
    hints     load hints

    `realised["compute_units"]` are the units that Core ML was allowed to use; stages place and evidence report the
    units used. `load_ms` and `load_native_ms` hold an entry per program; `last_native_ms` is Core ML's own time of the
    last prediction, all programs together, without Python's share (None if unknown).
    """

    last_native_ms: float | None = None

    def __init__(
        self,
        programs: list[Path],
        compiled: list[Path] | None,
        units: str,
        function: str | None = None,
        hints: LoadHints = NO_HINTS,
    ):
        ct = import_coremltools()
        self._chain = Chain(programs, units, function)
        self.load_ms: list[float] = []
        self._models = []
        unit, told = ct.ComputeUnit[COMPUTE_UNITS[units]], build_hints(hints)
        for index, program in enumerate(programs):
            begun = time.perf_counter()
            if compiled is None:
                model = ct.models.MLModel(
                    str(program), compute_units=unit, function_name=function, optimization_hints=told
                )
            else:
                model = ct.models.CompiledMLModel(
                    str(compiled[index]), compute_units=unit, function_name=function, optimization_hints=told
                )
            self.load_ms.append(1000 * (time.perf_counter() - begun))
            self._models.append(model)
        self._proxies = [_find_proxy(model, program) for model, program in zip(self._models, programs)]
        spent = [proxy.get_load_duration_in_nano_seconds() for proxy in self._proxies]
        self.load_native_ms = [None if one is None else one / 1e6 for one in spent]
        self.parts = len(self._models)
        self.reset()
        loaded_from = "package" if compiled is None else "compiled"
        self.realised: dict[str, object] = {**self._chain.realised, "loaded_from": loaded_from, "device": "local"}
        if told is not None:
            self.realised["hints"] = msgspec.structs.asdict(hints)

    def reset(self) -> None:
        """Set the states to zeros for a new sequence. Stateless programs have nothing to reset."""
        self.states = [
            model.make_state() if stateful else None for model, stateful in zip(self._models, self._chain.stateful)
        ]

    def prepare(self, inputs: Arrays) -> Arrays:
        """Return inputs in the types of coremltools' binding, so that a timed call includes no conversion."""
        import numpy as np

        pictures = {
            name: to_picture(inputs[name], layout) for name, layout in self._chain.pictures.items() if name in inputs
        }
        made = {name: to_bindable(value) for name, value in inputs.items() if name not in pictures}
        made = {name: value.astype(np.float32) if name in self._chain.real else value for name, value in made.items()}
        return {**made, **pictures}

    def predict(self, inputs: Arrays) -> Arrays:
        """Return outputs by name, float16 as float32. States continue from the previous call."""
        values, marks, clock = dict(inputs), self.marks, time.perf_counter
        taken: float | None = 0.0
        for model, proxy, names, state in zip(self._models, self._proxies, self._chain.takes, self.states):
            if marks is not None:
                marks.append(clock())
            values.update(model.predict({name: values[name] for name in names if name in values}, state=state))
            if marks is not None:
                marks.append(clock())
            spent = proxy.get_last_predict_duration_in_nano_seconds()
            taken = None if spent is None or taken is None else taken + spent / 1e6
        self.last_native_ms = taken
        return {name: values[name] for name in self._chain.outputs}


def load(params: dict[str, object], inputs: dict[str, Path]) -> CoreMLRuntime | RemoteRuntime:
    """Load the programs in `inputs["program"]`, compiled ones in `inputs["compiled"]` if given.

    params  compute_units; device ("local", "usb"); function, of multifunction programs

    Raises errors.Unavailable off macOS, errors.PackageError, and StageError if Core ML refuses to load a program.
    """
    if reason := apple.no_coreml():
        raise Unavailable(f"runtime=coreml {reason}; runtime=reference executes the same programs on this host")
    programs = package.program_paths(inputs["program"])
    compiled = find_compiled(inputs["compiled"], programs) if "compiled" in inputs else None
    settings = FunctionParams.read(params)
    units, function = settings.compute_units, settings.function
    try:
        if settings.device == "usb":
            return RemoteRuntime(programs, units, function, settings.options)
        return CoreMLRuntime(programs, compiled, units, function, settings.options)
    except (RuntimeError, ValueError) as error:  # of the native module, and of coremltools for hints before macOS 15
        raise StageError(f"Core ML does not load it: {error}") from error


def functions(params: dict[str, object], inputs: dict[str, Path], names: tuple[str, ...]) -> dict[str, Runtime]:
    """Load the named functions of the programs separately; they do not share states yet."""
    return {name: load({**params, "function": name}, inputs) for name in names}


def find_compiled(folder: Path, programs: list[Path]) -> list[Path]:
    """Return the .mlmodelc of each program. Raises PackageError if one is missing."""
    found = [folder / f"{program.stem}.mlmodelc" for program in programs]
    if missing := [path.name for path in found if not path.is_dir()]:
        raise PackageError(f"{folder}: no {', '.join(missing)}; delete the folder and compile again")
    return found


def _find_proxy(model: Any, program: Path) -> Any:
    """Return the native object behind a model, which has the durations that coremltools 9.0 does not show.

    Raises StageError for a package that did not load: MLModel only warns then, and would fail at the first prediction.
    """
    proxy = model.__proxy__ if hasattr(model, "__proxy__") else model._proxy
    if proxy is None:
        raise StageError(
            f"Core ML does not load {program.name}: {getattr(model, '_framework_error', 'no reason given')}"
        )
    return proxy
