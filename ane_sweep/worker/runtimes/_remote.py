"""Core ML on the iPhone or iPad at the USB port, through coremltools' own remote device support (Xcode 16 and later).

coremltools builds a small app from its own sources, signs it with the team in ANE_SWEEP_TEAM, installs it, and
transfers models and tensors as files. A call needs a second for the transfer, so `clock` counts only the times that
Core ML on the device reports for loading and predicting. States are not supported there (coremltools 9.0).
"""

import asyncio
import os
import tempfile
from collections.abc import Coroutine
from functools import lru_cache
from pathlib import Path
from typing import Any

from ane_sweep.errors import StageError, Unavailable
from ane_sweep.worker.params import NO_HINTS, LoadHints
from ane_sweep.worker.runtimes._chain import COMPUTE_UNITS, Chain, to_bindable
from ane_sweep.worker.runtimes._coremltools import build_hints, import_coremltools
from ane_sweep.worker.runtimes._runtime import Arrays, Runtime

TEAM_VARIABLE = "ANE_SWEEP_TEAM"  # an Apple development team's id, for signing


class RemoteRuntime(Runtime):
    """A chain of models on the device, with the interface of CoreMLRuntime."""

    last_native_ms: float | None = None

    def __init__(self, programs: list[Path], units: str, function: str | None = None, hints: LoadHints = NO_HINTS):
        ct = import_coremltools()
        from coremltools.models.ml_program.experimental import async_wrapper

        self._chain = Chain(programs, units, function)
        if any(self._chain.stateful):
            raise StageError("device=usb: coremltools' remote devices keep no states; cache=none, or device=local")
        device = prepare_device()
        self._spent_s = 0.0  # what Core ML on the device has spent so far
        self.clock = lambda: self._spent_s
        self._models = []
        self.load_ms: list[float] = []
        for program in programs:
            model = async_wrapper.MLModelAsyncWrapper.from_spec_or_path(
                spec_or_path=str(program),
                weights_dir="",
                compute_units=ct.ComputeUnit[COMPUTE_UNITS[units]],
                function_name=function,
                optimization_hints=build_hints(hints),
                device=device,
            )
            run_coroutine(model.load())
            self.load_ms.append((model.load_duration_in_nano_seconds or 0) / 1e6)
            self._spent_s += self.load_ms[-1] / 1e3
            self._models.append(model)
        self.load_native_ms: list[float | None] = list(self.load_ms)
        self.realised: dict[str, object] = {
            **self._chain.realised,
            "loaded_from": "package",
            "device": f"usb: {device.type.value}, {device.os_version} ({device.os_build_number})",
        }

    def prepare(self, inputs: Arrays) -> Arrays:
        return {name: to_bindable(value) for name, value in inputs.items()}

    def predict(self, inputs: Arrays) -> Arrays:
        """Return outputs by name."""
        values = dict(inputs)
        taken = 0.0
        for model, names in zip(self._models, self._chain.takes):
            values.update(
                run_coroutine(model.predict({name: values[name] for name in names if name in values}, state=None))
            )
            taken += (model.last_predict_duration_in_nano_seconds or 0) / 1e6
        self.last_native_ms = taken
        self._spent_s += taken / 1e3
        return {name: values[name] for name in self._chain.outputs}


def load_plan(compiled: Path, units: str) -> Any:
    """Return the MLComputePlan of a compiled program on the device."""
    ct = import_coremltools()
    from coremltools.models.ml_program.experimental import compute_plan_utils

    return run_coroutine(
        compute_plan_utils.load_compute_plan_from_path_on_device(
            path=str(compiled), compute_units=ct.ComputeUnit[COMPUTE_UNITS[units]], device=prepare_device()
        )
    )


def prepare_device() -> Any:
    """Start coremltools' app on the connected iPhone or iPad and return it. Raises Unavailable, StageError."""
    from coremltools.models.ml_program.experimental import remote_device

    kinds = (remote_device.DeviceType.IPHONE, remote_device.DeviceType.IPAD)
    try:
        found = [device for kind in kinds for device in remote_device.Device.get_connected_devices(device_type=kind)]
        if len(found) != 1:
            raise Unavailable(f"device=usb: {len(found) or 'no'} iPhone or iPad connected; one is needed")
        credentials = remote_device.AppSigningCredentials(development_team=os.environ.get(TEAM_VARIABLE, ""))
        folder = Path(tempfile.mkdtemp(prefix="device-"))
        return run_coroutine(found[0].prepare_for_model_debugging(credentials=credentials, working_directory=folder))
    except (ValueError, remote_device._DeviceCtlError, remote_device._AppBuilder.Error) as error:
        raise StageError(
            f"device=usb: the device could not be prepared: {str(error).strip() or type(error).__name__}. "
            f"Signing needs a team: {TEAM_VARIABLE}=ABCDE12345, as in Xcode's account settings"
        ) from error


@lru_cache(maxsize=1)
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # coremltools asks for the current one
    return loop


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run one of coremltools' coroutines and return its result."""
    return _event_loop().run_until_complete(coroutine)
