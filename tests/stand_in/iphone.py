"""The stand-in's iPhone: coremltools' remote device support, with the drop-in in place of the app on the device.

Models as folders, tensors as files with descriptors and plans as JSON go through coremltools' own code in both directions;
only building, installing and reaching the app is replaced. A script's answers with the condition `device: usb` belong to
it. The connected devices are the answer to `xcrun devicectl list devices`.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from ane_sweep.machine import tools
from tests.stand_in import Script, coreml

REMOTE = "coremltools.models.ml_program.experimental.remote_device"


def install(script: Script) -> None:
    """Install the scripted drop-in, with its iPhone."""
    coreml.install(script)
    coreml.patch_after_import(REMOTE, patch_remote_device)


def patch_remote_device(remote_device: ModuleType) -> Callable[[], None]:
    """Patch coremltools' module, and return a function that undoes it."""
    patches = [
        (remote_device._DeviceCtl, "_run_command", staticmethod(_devicectl)),
        (remote_device.Device, "_build_and_launch_model_runner_app", _launch_app),
        (remote_device._DeviceCtlRemoteService, "call_method", _call_method),
    ]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)

    def undo() -> None:
        for owner, name, value in before:
            setattr(owner, name, value)

    return undo


def _devicectl(command: str) -> Any:
    answer = tools.ask(*command.split())
    if answer is None or not answer.ok:
        raise ValueError("The 'devicectl' command is required.")  # coremltools' own words
    return json.loads(answer.stdout)


def _launch_app(self: Any, *_: Any, **__: Any) -> Any:
    folder = Path(tempfile.mkdtemp(prefix="app-"))
    return SimpleNamespace(
        device=self, is_alive=True, working_directory=folder, bundle_identifier="scripted", models={}
    )


async def _call_method(
    self: Any, name: str, params: dict[str, Any], resource: Path | None = None
) -> tuple[Any, Path | None]:
    models = self.socket.device.session.models
    kind = name.removeprefix("MLModelService.")
    key = params["modelID"]
    if kind == "Load":
        models[key] = _RemoteModel(Path(str(resource)), params["computeUnits"], params.get("functionName") or "")
        return {"modelID": key, "duration": models[key].model.get_load_duration_in_nano_seconds()}, None
    if kind == "Prediction":
        return models[key].predict(key, params["inputs"], Path(str(resource)))
    if kind == "ComputePlan":
        return {"modelID": key, "infos": models[key].plan()}, None
    models.pop(key, None)
    return {"modelID": key}, None


class _RemoteModel:
    """One model in the app on the device."""

    def __init__(self, path: Path, units: str, function: str):
        self.path, self.units = path, units
        with coreml.on_device("usb"):
            self.model = coreml.ScriptedProxy(str(path), units, function)

    def predict(self, key: str, described: dict[str, Any], resource: Path) -> tuple[Any, Path]:
        from coremltools.models.ml_program.experimental.remote_device import _TensorDescriptor

        with open(resource, "rb") as file:
            inputs = {name: _TensorDescriptor.from_dict(entry).to_array(file) for name, entry in described.items()}
        with coreml.on_device("usb"):
            outputs = self.model.predict(inputs)
        answer = Path(tempfile.mkdtemp(prefix="answer-")) / "outputs.bin"
        with open(answer, "w+b") as file:
            made = {name: _TensorDescriptor.from_array(array, file).as_dict() for name, array in outputs.items()}
        return {
            "modelID": key,
            "outputs": made,
            "duration": self.model.get_last_predict_duration_in_nano_seconds(),
        }, answer

    def plan(self) -> list[dict[str, Any]]:
        from coremltools.models.ml_program.experimental import model_structure_path, remote_device

        classes = remote_device.ComputePlan
        devices = {"cpu": classes.CPUDevice(), "gpu": classes.GPUDevice(), "ane": classes.NeuralEngineDevice(16)}
        kinds = {"MLCPUComputeDevice": "cpu", "MLGPUComputeDevice": "gpu", "MLNeuralEngineComputeDevice": "ane"}
        with coreml.on_device("usb"):
            plan = coreml.ScriptedProxy.get_compute_plan(str(self.path), self.units)
            infos: list[dict[str, Any]] = []
            for op, path in model_structure_path.map_model_structure_to_path(plan.model_structure, components=[]):
                usage = plan.get_compute_device_usage_for_mlprogram_operation(op)
                cost = plan.get_estimated_cost_for_mlprogram_operation(op)
                if usage is not None:
                    names = [kinds[type(device).__name__] for device in usage.supported_compute_devices]
                    preferred = devices[kinds[type(usage.preferred_compute_device).__name__]]
                    used = classes.DeviceUsage(preferred, [devices[name] for name in names])
                    info = classes.OperationOrLayerInfo(used, None if cost is None else cost.weight, path)
                    infos.append(info.to_dict())
        made: list[dict[str, Any]] = json.loads(json.dumps(infos))
        return made
